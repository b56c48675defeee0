"""In signed mode a bundle runs from nowhere on the device unless its policy trusts it, release or not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.device.trust.statement import statement_path
from tests.device.releases.device import Device
from tests.device.trust.workstation import Workstation
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


def bundle_path(workstation: Workstation, number: int) -> Path:
    return workstation.home / f"{number}.0.0.edge.zip"


def loaded(on: Device, path: Path) -> str:
    words = [sys.executable, "-c", LOAD, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=on.variables())
    return (done.stdout if done.returncode == 0 else done.stderr.strip().splitlines()[-1]).strip()


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_an_unsigned_bundle_runs_by_no_command(
    signed: Device, workstation: Workstation, tmp_path: Path, door: tuple[str, ...]
) -> None:
    signed.do(*through(door, bundle_path(workstation, 1), tmp_path))
    statement_path(bundle_path(workstation, 1)).unlink()
    message = signed.refused(8, *through(door, bundle_path(workstation, 1), tmp_path))
    assert "edgekit sign" in message and f"this device is in signed mode (policy: {signed.root / 'trust'}" in message


def test_a_program_does_not_load_an_unsigned_bundle(
    signed: Device, empty: Device, workstation: Workstation, valid_bundles: dict[str, Path]
) -> None:
    assert loaded(signed, bundle_path(workstation, 1)) == "1.0.0"
    assert "TrustError" in (message := loaded(signed, valid_bundles["1.0.0"])) and "signed mode" in message
    shutil.rmtree(signed.root / "trust")
    assert loaded(empty, valid_bundles["1.0.0"]) == "1.0.0", "without a policy all is as ever"


def test_what_is_older_than_the_confirmed_release_runs_only_as_a_release(
    signed: Device, workstation: Workstation
) -> None:
    for number in (1, 2):
        signed.do("install", bundle_path(workstation, number))
        signed.do("confirm")
    assert "is older than" in loaded(signed, bundle_path(workstation, 1))
    assert loaded(signed, signed.root / "releases" / "1" / "bundle.edge.zip") == "1.0.0"
    assert loaded(signed, bundle_path(workstation, 2)) == "2.0.0"


def test_to_look_into_one_needs_no_trust(signed: Device, valid_bundles: dict[str, Path]) -> None:
    assert "tiny" in signed.do("info", valid_bundles["1.0.0"])
    signed.run("doctor", valid_bundles["1.0.0"])
