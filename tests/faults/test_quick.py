"""The same faults on an artifact of two small files: seconds, so they run with every `make test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def everything(folder: Path, *without: str) -> tuple[int, list[str]]:
    """Kills tried, and what went wrong; see `tests.faults.small`."""
    command = [sys.executable, "-m", "tests.faults.small", str(folder), *without]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    kills, found = json.loads(done.stdout.splitlines()[-1])
    return kills, found


def test_an_artifact_survives_every_kill_and_power_cut(tmp_path: Path) -> None:
    kills, found = everything(tmp_path / "whole")
    assert kills > 60
    assert found == []


@pytest.mark.parametrize("step", ["fsync", "replace", "publish"])
def test_without_one_of_the_steps_it_does_not(step: str, tmp_path: Path) -> None:
    assert everything(tmp_path / step, step)[1]
