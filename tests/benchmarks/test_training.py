"""`python -m benchmarks.training`: one small measurement. How fast a loop is is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import ROOT


@pytest.mark.long
def test_two_loops_take_turns_and_give_the_same_bits(tmp_path: Path) -> None:
    also = ["--also", "training.shares=1 EDGEKIT_SPLIT_MB=0"]
    options = ["--config", "tests/configs/tiny.yaml", "--epochs", "2", "--limit", "600", *also]
    command = [sys.executable, "-m", "benchmarks.training", *options, "--json", str(tmp_path / "found.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    now, other = json.loads((tmp_path / "found.json").read_text())
    assert len(now["epochs"]) == len(other["epochs"]) == 2
    assert now["sha256"] == other["sha256"] and "same bits" in ran.stdout
    assert ran.stdout.count("cores busy") == 2
