"""Devices whose disk is full: each says so, keeps what it runs, and continues when there is space again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import requirements
from tests.fleet.devices.rig import Rig
from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet


@pytest.fixture
def small(tmp_path: Path) -> Rig:
    """One device on a tmpfs of 600 kB, half of what is needed."""
    mounted = tmp_path / "rig" / "devices" / "127.1.0.1"
    line = f"mount -t tmpfs -o size=600k,mode=700 none {mounted}"
    requirements.mount()
    return Rig(tmp_path / "rig", 1, line)


def test_a_disk_that_is_too_small_is_an_error_before_anything_is_sent(small: Rig, bundles: dict[str, Path]) -> None:
    with small as rig:
        fleet = Fleet(rig, rig.inventory(), bundles)
        found = fleet.report(7, "push", bundles["1.0.0"], "--confirm")
        assert "bytes are free in" in found["d0"]["why"] and "`edgerun gc` there" in found["d0"]["why"]


def test_a_disk_that_fills_up_meanwhile_is_the_devices_own_word(fleet: Fleet) -> None:
    """The device reports too much free space, as if another program wrote at the same time."""
    fleet.run(0, "push", fleet.bundles["1.0.0"], "--confirm", "--only", "d0")
    fleet.rig.setting(0, "ulimit -f 8")  # files of 4 or 8 kB at most, and a signal for more
    found = fleet.report(7, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0")
    assert found["d0"]["state"] == "failed", found
    assert fleet.status(0)["current"] == 1 and fleet.status(0)["state"] == "confirmed"
    os.unlink(fleet.rig.device(0) / ".rig")
    assert fleet.states(0, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0") == ["confirmed"]
    assert json.dumps(fleet.status(0)["incoming"]) == "{}"
