"""A run killed in the middle of a training goes on from its last finished epoch, to the same artifact."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.core import artifacts
from tests.conftest import ROOT, TINY, FinishedRun, run_edgekit

pytestmark = pytest.mark.processes


def test_a_run_killed_while_it_trains_goes_on_to_the_same_bits(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """Killed in the distillation, with the profile done: what comes after it is reused, for it is the same."""
    run = tmp_path / "tiny"
    shutil.copytree(tiny_run.folder, run)
    shutil.rmtree(run / "distill")
    shutil.rmtree(run / ".training")
    training = run / ".training/distill"
    started = subprocess.Popen(
        [sys.executable, "-m", "edgekit", "run", str(TINY), "--out", str(tmp_path)],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 300
        while not (training / "student-soft_targets.safetensors").exists():
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    retained = {path.name for path in training.iterdir()}
    assert {"student-alone.safetensors", "student-soft_targets.safetensors"} <= retained
    again = run_edgekit("run", str(TINY), "--out", str(tmp_path))
    assert again.returncode == 0, again.stderr
    executed = (run / "notebooks/02_distill.ipynb").read_text()
    assert "student-alone: had finished after 12 of 12 epochs" in executed
    assert "student-soft_targets: continues after" in executed or "student-soft_targets: had finished" in executed
    whole, stopped = (artifacts.load(folder / "distill") for folder in (tiny_run.folder, run))
    assert stopped.digest == whole.digest and stopped.took != whole.took
    assert "profile: reused" in again.stdout
    assert not training.exists()  # what is sealed needs no checkpoint
    assert list((run / ".training/answers").rglob("*.npz"))
