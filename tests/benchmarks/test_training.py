"""`python -m benchmarks.training`: its arithmetic, and one small measurement. How fast a loop is is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.training import roof
from benchmarks.training.__main__ import ROOT, wilson


def test_the_interval_of_an_accuracy_is_wilsons() -> None:
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    low, high = wilson(1.0, 40)
    assert low == pytest.approx(0.9124, abs=1e-4) and high == pytest.approx(1)


def test_a_layer_stands_under_the_slower_side_of_its_roof() -> None:
    machine = roof.Machine(gmacs_per_s=10, bfloat16_gmacs_per_s=20, gbytes_per_s=1)
    computing, moving = [10**9, 10**8], [10**6, 10**9]  # 0.3 s and 0.3 s, 0.0003 s and 3 s, three passes each
    found = roof.samples_per_s([computing, moving], machine)
    assert found["computing"] == pytest.approx(1 / (0.3 + 0.0003))
    assert found["moving"] == pytest.approx(1 / (0.3 + 3))
    assert found["roof"] == pytest.approx(1 / (0.3 + 3))


@pytest.mark.long
def test_two_loops_take_turns_and_give_the_same_bits(tmp_path: Path) -> None:
    options = ["--config", "tests/configs/tiny.yaml", "--epochs", "2", "--limit", "600", "--also", "training.shares=1"]
    command = [sys.executable, "-m", "benchmarks.training", *options, "--json", str(tmp_path / "found.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    now, also = json.loads((tmp_path / "found.json").read_text())
    assert len(now["epochs"]) == len(also["epochs"]) == 2
    assert now["sha256"] == also["sha256"] and "same bits" in ran.stdout
