"""Commands killed where they change the state; `make faults` kills each of them at every write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.releases import kills
from tests.device.releases.device import Device, digest
from tests.device.releases.kills import Kills

pytestmark = pytest.mark.processes

STATES = ("rename", "renameat", "renameat2", "symlink", "symlinkat", "mkdir", "mkdirat")


def test_an_installation(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.receive(valid_bundles["2.0.0"])
    found = Kills()
    kills.at_every_write(empty, ["install", digest(valid_bundles["2.0.0"])], found, calls=STATES)
    assert found.faults == [] and found.tried.total() >= 6, str(found)


def test_a_way_back(empty: Device, valid_bundles: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    found = Kills()
    kills.at_every_write(empty, ["rollback", "--release", 2], found, calls=STATES)
    assert found.faults == [] and found.tried.total() >= 3, str(found)
