"""Three valid bundles, and for each test a device, a watch and a program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.device.releases import device
from tests.device.releases.device import Device
from tests.device.releases.watching import PATIENCE_S, PROGRAM, Watch
from tests.device.trust.workstation import Workstation, set_up


@pytest.fixture(scope="session")
def valid_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version: 1.0.0, 2.0.0 and 3.0.0 of one network."""
    folder = tmp_path_factory.mktemp("valid")
    return {each: device.write(folder / f"{each}.edge.zip", version=each) for each in ("1.0.0", "2.0.0", "3.0.0")}


@pytest.fixture
def empty(tmp_path: Path) -> Device:
    """A device that has received nothing yet."""
    return Device(tmp_path / "home")


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Workstation:
    """Anna has signed 1.0.0 to 3.0.0 of one network, with the counters 10, 20 and 30."""
    workstation = set_up(tmp_path_factory.mktemp("signer"))
    for number in (1, 2, 3):
        path = device.write(workstation.home / f"{number}.0.0.edge.zip", version=f"{number}.0.0")
        workstation.sign(path=path, counter=10 * number)
    return workstation


@pytest.fixture
def workstation(signer: Workstation, tmp_path: Path) -> Workstation:
    """Changed freely by a test."""
    return Workstation(Path(shutil.copytree(signer.home, tmp_path / "workstation")))


@pytest.fixture
def signed(empty: Device, workstation: Workstation) -> Device:
    """A device in signed mode, with nothing installed."""
    empty.do("trust", workstation.trust)
    return empty


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    """Return a function that starts `edgerun watch` on a device; it is stopped after the test."""
    started: list[Watch] = []

    def start(on: Device, *words: object, **more: str) -> Watch:
        started.append(Watch(on, *words, **more))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.terminate()  # not a kill, which leaves the program
            try:
                each.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(each.process.pid, signal.SIGKILL)
                each.process.wait()


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """The arguments of a program that runs until it is stopped."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return ["--", sys.executable, str(tmp_path / "program.py"), "{bundle}", "--home"]


@pytest.fixture
def trying(empty: Device, valid_bundles: dict[str, Path]) -> Device:
    """Release 1 is confirmed, release 2 on probation."""
    empty.confirmed(valid_bundles["1.0.0"])
    empty.install(valid_bundles["2.0.0"])
    return empty
