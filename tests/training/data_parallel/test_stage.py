"""A whole stage by shares: one digest for 1, 2 and 4 processes, and none half made where one of them is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.training.data_parallel.environment import use_processes
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY
from tests.training.data_parallel.test_processes import gone, workers

pytestmark = pytest.mark.processes
SETTINGS = "training.shares=4 data.limit=300 profile.epochs=4 profile.latency_calls=20"


def profile(out: Path, processes: int) -> Artifact:
    with use_processes(processes):
        return open_stage("profile", {"config": str(TINY), "out": str(out), "settings": SETTINGS}).run()


def kill_one(checkpoint: Path, killed: list[int]) -> None:
    """As soon as there is an epoch to go on from."""
    while not checkpoint.exists():
        time.sleep(0.005)
    killed.extend(workers(os.getpid()))
    os.kill(killed[0], signal.SIGKILL)


def test_a_stage_seals_one_network_whoever_trains_it_and_is_never_half_sealed(tmp_path: Path) -> None:
    alone = profile(tmp_path / "alone", 1)
    run, killed = tmp_path / "killed" / "tiny", list[int]()
    killer = threading.Thread(target=kill_one, args=[run / ".training/profile/baseline.safetensors", killed])
    killer.start()
    with pytest.raises(StageError, match=r"^training process 2 of 2 was killed \(SIGKILL\)"):
        profile(run.parent, 2)
    killer.join()
    assert gone(killed)
    assert not (run / "profile").exists() and not list(run.glob(".profile.*"))
    again = profile(run.parent, 4)
    artifacts.verify(again)
    assert again.digest == alone.digest and again.cache_inputs.key == alone.cache_inputs.key
    assert again.config["training"]["shares"] == 4 and again.config["device"] == "cpu"
