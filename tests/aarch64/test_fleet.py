"""An emulated aarch64 device behind a real sshd: bundles are pushed, self-tested, confirmed, and rolled back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle
from tests.fleet.devices.rig import Rig
from tests.matrix.bundles import Known

from .device import Device
from .fetch import DEVICE

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]


@pytest.fixture(scope="module")
def interpreter() -> str:
    return "litert"


@pytest.fixture(scope="module")
def processor() -> str:
    return "cortex-a72"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig") / "rig", 1) as made:
        yield made


@pytest.fixture(scope="module")
def hosts(rig: Rig, device: Device) -> Path:
    """The device of the rig has the emulated Python and its packages."""
    site, home = DEVICE / "site" / device.interpreter, DEVICE / "root" / "usr"
    rig.setting(0, f"export PYTHONHOME='{home}' PYTHONPATH='{site}' PYTHONNOUSERSITE=1")
    return rig.inventory(d0={"class": "pi4", "python": str(device.python)})


@pytest.fixture(scope="module")
def versions(digits: Mapping[str, Known], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The digits for TFLite, and the same as the next version."""
    found = bundle.read(digits["tflite"].path)
    folder = tmp_path_factory.mktemp("versions")
    made = []
    for version in ("1.0.0", "2.0.0"):
        path = folder / f"digits-tflite-{version}.edge.zip"
        bundle.write(path, replace(found.manifest, version=version), found.members)
        made.append(path)
    return made


def fleet(rig: Rig, hosts: Path, *words: object) -> dict[str, Any]:
    """What a command says of the only device."""
    done = rig.edgekit("fleet", *words, "--to", hosts, "--json", timeout_s=900)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_bundle_goes_there_and_back(rig: Rig, hosts: Path, versions: list[Path]) -> None:
    """Emulation is slow, so no budget of latency holds there."""
    for path in versions:
        found = fleet(rig, hosts, "push", path, "--confirm", "--latency-ms", 0)
        assert found["state"] == "confirmed", found
    status = fleet(rig, hosts, "status")
    assert (status["version"], status["state"]) == ("2.0.0", "confirmed")
    proof = json.loads((rig.device(0) / ".edge" / "current" / "proof.json").read_text())
    assert proof["selftest"]["ok"] and proof["selftest"]["interpreter"] == "litert"
    began = time.monotonic()
    fleet(rig, hosts, "rollback", versions[1])
    print(f"rollback on an emulated aarch64, over SSH: {time.monotonic() - began:.1f} s")
    assert fleet(rig, hosts, "status")["version"] == "1.0.0"
