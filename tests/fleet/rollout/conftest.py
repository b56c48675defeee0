"""A fleet of four devices that are empty for each test, and bundles to push."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.device.releases import device
from tests.fleet.devices.rig import Rig, need_rig


@dataclass
class Fleet:
    """The rig, its hosts.yaml, and what commands say."""

    rig: Rig
    hosts: Path
    bundles: dict[str, Path]

    def run(self, code: int, command: str, *words: object, timeout_s: float = 300) -> str:
        """Run `edgekit fleet COMMAND … --to hosts.yaml`, which must end with this code; return what it printed."""
        done = self.rig.edgekit("fleet", command, *words, "--to", self.hosts, timeout_s=timeout_s)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def report(self, code: int, command: str, *words: object, **more: float) -> dict[str, dict[str, Any]]:
        """Run it with --json, and return the report on each device by its name."""
        lines = self.run(code, command, *words, "--json", **more).splitlines()
        return {found["host"]: found for found in map(json.loads, lines)}

    def states(self, code: int, command: str, *words: object, **more: float) -> list[str]:
        """The states alone, in the order of the inventory."""
        return [found["state"] for found in self.report(code, command, *words, **more).values()]

    def status(self, number: int) -> dict[str, Any]:
        """What a device itself says."""
        words = self.rig.edgerun(number, "status", "--json")
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.rig.device_environment(number), check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def on(self, number: int, *words: object) -> subprocess.CompletedProcess[str]:
        """`edgerun …` on a device."""
        environment = self.rig.device_environment(number)
        return subprocess.run(
            self.rig.edgerun(number, *words), capture_output=True, text=True, env=environment, check=True
        )


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    need_rig()
    with Rig(tmp_path_factory.mktemp("rig") / "rig", 4) as rig:
        yield rig


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles by version: two valid ones, and "wrong", whose golden answers are wrong."""
    folder = tmp_path_factory.mktemp("bundles")
    valid = {each: device.write(folder / f"tiny-onnx-{each}.edge.zip", version=each) for each in ("1.0.0", "2.0.0")}
    return {**valid, "wrong": device.wrong(folder / "tiny-onnx-6.6.6.edge.zip")}


@pytest.fixture
def fleet(four: Rig, bundles: dict[str, Path]) -> Iterator[Fleet]:
    """Four devices that have received nothing yet."""
    known = (four.ssh / "known_hosts").read_bytes()
    yield Fleet(four, four.inventory(), bundles)
    (four.ssh / "known_hosts").write_bytes(known)
    (four.ssh / "config").unlink(missing_ok=True)
    shutil.rmtree(four.folder / ".edgekit", ignore_errors=True)
    for number in range(four.count):
        for path in four.device(number).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
