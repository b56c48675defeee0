"""Starts of a release on probation: each uses up a try first, except those that a power cut ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from edgekit.device.releases import records, transitions
from tests import requirements
from tests.device.releases.device import Device, digest

pytestmark = pytest.mark.processes

SAY = "import os; print(os.environ['EDGERUN_RELEASE'], os.environ['EDGERUN_HOME'])"


@pytest.fixture
def trying(empty: Device, valid_bundles: dict[str, Path]) -> Device:
    """Release 1 is confirmed, release 2 has two tries."""
    empty.confirmed(valid_bundles["1.0.0"])
    empty.install(valid_bundles["2.0.0"], "--tries", 2)
    return empty


def started(device: Device) -> int:
    """The release that `boot` gives."""
    return int(Path(device.do("boot").strip()).parent.name)


def restarted(device: Device) -> None:
    """The machine went down and came up: what the last try wrote carries the id of another boot."""
    trial = json.loads((device.root / "trial.json").read_text())
    (device.root / "trial.json").write_text(json.dumps({**trial, "boot": "an earlier boot"}))


def test_each_start_spends_a_try_before_the_program_starts(trying: Device) -> None:
    assert [started(trying) for _ in range(2)] == [2, 2]
    assert trying.status()["tries"] == 0
    assert started(trying) == 1, "it has used all its tries"
    found = trying.status()
    assert (found["state"], found["current"]) == ("confirmed", 1)
    assert "it has used all its tries" in found["releases"][1]["why"]
    assert started(trying) == 1


def test_a_confirmed_release_spends_nothing(trying: Device) -> None:
    trying.do("confirm")
    assert [started(trying) for _ in range(5)] == [2] * 5


def test_a_power_cut_is_no_try(trying: Device) -> None:
    """It says nothing against the release: what others' devices counted, and went back for, was the power."""
    for outage in range(transitions.MAX_OUTAGES):
        assert started(trying) == 2
        assert trying.status()["outages"] == outage
        restarted(trying)
    assert started(trying) == 2 and trying.status()["tries"] == 1


def test_a_release_that_takes_the_machine_down_each_time_is_rolled_back(trying: Device) -> None:
    starts = 0
    while started(trying) == 2:
        starts += 1
        restarted(trying)
        assert starts < 20
    assert starts == 2 + transitions.MAX_OUTAGES


def test_a_try_that_ended_before_the_power_cut_stays_spent(trying: Device) -> None:
    started(trying)
    with trying.home.locked():
        transitions.end_attempt(trying.home, give_back=False)
    restarted(trying)
    assert started(trying) == 2 and trying.status()["tries"] == 0


def test_a_first_release_that_has_no_try_left_is_no_release(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.install(valid_bundles["1.0.0"], "--tries", 1)
    empty.do("boot")
    assert "no release is current" in empty.refused(4, "boot")


def test_it_starts_a_program_with_the_release(trying: Device) -> None:
    assert trying.do("boot", "--", sys.executable, "-c", SAY).split() == ["2", str(trying.root)]
    assert trying.do("boot", "--", "echo", "--home", "{bundle}").strip().endswith("--home " + _bundle(trying, 2))
    assert "nonsuch: cannot be started" in trying.refused(5, "boot", "--", "nonsuch")


def _bundle(device: Device, number: int) -> str:
    return str(device.root / "releases" / str(number) / "bundle.edge.zip")


def test_a_bundle_that_was_changed_is_not_started(trying: Device) -> None:
    path = Path(_bundle(trying, 2))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    for _ in range(2):
        assert "its digest has changed since it was installed" in trying.refused(8, "boot")
    assert started(trying) == 1, "it has had its tries"


def test_a_link_in_its_place_is_not_followed(trying: Device, tmp_path: Path) -> None:
    path = Path(_bundle(trying, 2))
    path.rename(tmp_path / "same.edge.zip")
    path.symlink_to(tmp_path / "same.edge.zip")
    assert digest(path) == records.bundle_digest(trying.home, 2)
    assert "cannot be read" in trying.refused(8, "boot")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"release": "x"}', '{"release": 2}', '{"release": 2, "tries": "many"}']
)
def test_a_damaged_trial_is_one_more_try(text: str, trying: Device) -> None:
    """No state of a file keeps a device from starting."""
    (trying.root / "trial.json").write_text(text)
    assert started(trying) == 2
    assert started(trying) == 1


def test_a_current_that_points_nowhere_is_put_right(trying: Device) -> None:
    for name in ("releases/99", "elsewhere", "/etc"):
        (trying.root / "current").unlink()
        (trying.root / "current").symlink_to(name)
        assert started(trying) == 1
        assert trying.fault() == "" and trying.status()["state"] == "confirmed"


def test_a_trial_that_lost_its_record_goes_back(trying: Device) -> None:
    (trying.root / "trial.json").unlink()
    assert started(trying) == 1 and trying.fault() == ""


def test_a_first_one_that_lost_its_record_is_still_on_trial(empty: Device, valid_bundles: dict[str, Path]) -> None:
    """There is none to go back to, and nobody has confirmed it."""
    empty.install(valid_bundles["1.0.0"])
    (empty.root / "trial.json").unlink()
    found = empty.status()
    assert (found["state"], found["tries"]) == ("trial", 1) and empty.fault() == ""
    (empty.root / "trial.json").unlink()
    empty.do("confirm")
    assert (empty.root / "releases" / "1" / "confirmed.json").exists() and empty.fault() == ""


def on_a_read_only_disk(device: Device) -> Device:
    """The same home, where nothing can be written; a skip where no disk can be mounted."""
    mount = f"mount --bind {device.root} {device.root} && mount -o remount,bind,ro {device.root}"
    command = [*requirements.mount(), "sh", "-c", f'{mount} && exec "$@"', "sh", *device.command]
    return Device(device.root, device.environment, command)


def test_on_a_read_only_disk_the_confirmed_release_starts(trying: Device) -> None:
    """Where a try cannot be counted, none is begun."""
    fixed = on_a_read_only_disk(trying)
    assert started(fixed) == 1
    assert fixed.status()["state"] == "trial" and "on probation" in fixed.do("status")
    assert "Read-only file system" in fixed.refused(7, "confirm")
    trying.do("confirm")
    assert started(fixed) == 2 and fixed.status()["state"] == "confirmed"


def test_on_a_read_only_disk_a_first_release_on_trial_does_not_start(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    empty.install(valid_bundles["1.0.0"])
    assert "Read-only file system" in on_a_read_only_disk(empty).refused(7, "boot")
