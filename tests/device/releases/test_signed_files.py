"""In signed mode a bundle runs from nowhere on the device unless its policy trusts it, release or not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.device.trust.statement import statement_path
from tests.device.releases.device import Device
from tests.device.trust.desk import Desk
from tests.runner.conftest import samples

pytestmark = pytest.mark.processes

LOAD = "import sys; from edgekit.runner import load; print(load(sys.argv[1], trial=False).manifest.version)"
DOORS = (("selftest",), ("selftest", "--no-trial"), ("bench", "--calls", "20"), ("bench", "--compare"), ("predict",))
"""Commands that run a bundle."""


def through(door: tuple[str, ...], bundle: Path, folder: Path) -> list[object]:
    command, *options = door
    if command == "predict":
        import numpy as np

        np.save(folder / "sample.npy", samples()[0])
        return [command, bundle, folder / "sample.npy", *options]
    return [command, bundle, *options]


def at(desk: Desk, number: int) -> Path:
    return desk.home / f"{number}.0.0.edge.zip"


def loaded(on: Device, path: Path) -> str:
    words = [sys.executable, "-c", LOAD, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=on.variables())
    return (done.stdout if done.returncode == 0 else done.stderr.strip().splitlines()[-1]).strip()


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_an_unsigned_bundle_runs_by_no_command(
    signed: Device, desk: Desk, tmp_path: Path, door: tuple[str, ...]
) -> None:
    signed.do(*through(door, at(desk, 1), tmp_path))
    statement_path(at(desk, 1)).unlink()
    said = signed.refused(8, *through(door, at(desk, 1), tmp_path))
    assert "edgekit sign" in said and f"this device is in signed mode (policy: {signed.root / 'trust'}" in said


def test_nor_does_a_program_load_one(signed: Device, empty: Device, desk: Desk, sound: dict[str, Path]) -> None:
    assert loaded(signed, at(desk, 1)) == "1.0.0"
    assert "TrustError" in (said := loaded(signed, sound["1.0.0"])) and "signed mode" in said
    shutil.rmtree(signed.root / "trust")
    assert loaded(empty, sound["1.0.0"]) == "1.0.0", "without a policy all is as ever"


def test_what_is_older_than_the_confirmed_release_runs_only_as_a_release(signed: Device, desk: Desk) -> None:
    for number in (1, 2):
        signed.do("install", at(desk, number))
        signed.do("confirm")
    assert "is older than" in loaded(signed, at(desk, 1))
    assert loaded(signed, signed.root / "releases" / "1" / "bundle.edge.zip") == "1.0.0"
    assert loaded(signed, at(desk, 2)) == "2.0.0"


def test_to_look_into_one_needs_no_trust(signed: Device, sound: dict[str, Path]) -> None:
    assert "tiny" in signed.do("info", sound["1.0.0"])
    signed.run("doctor", sound["1.0.0"])
