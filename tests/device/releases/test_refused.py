"""A current release that no longer loads: the status says why, and it can be signed again or repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.releases.device import Device, digest
from tests.device.releases.test_signed import CLOCK, DAY_S, at_another_time, bundle_path, confirm, loaded
from tests.device.trust.workstation import LABEL, Workstation

pytestmark = pytest.mark.processes

LATER = 100.0
"""Days."""


def damage(on: Device, number: int) -> None:
    """One byte of a release; the file in the store is the same one."""
    path = on.root / "releases" / str(number) / "bundle.edge.zip"
    path.chmod(0o600)
    data = path.read_bytes()
    with open(path, "r+b") as stream:
        stream.write(bytes([data[0] ^ 1]))


def state_and_reason(on: Device) -> tuple[str, str]:
    """Return the state, and why the current release cannot be loaded."""
    found = on.status()
    return found["state"], found.get("refused", "")


def test_a_release_whose_statement_has_ended_is_signed_again(signed: Device, workstation: Workstation) -> None:
    workstation.sign(path=bundle_path(workstation, 1), counter=10, days=90)
    confirm(signed, bundle_path(workstation, 1))
    assert state_and_reason(signed) == ("confirmed", "")
    later = at_another_time(signed, LATER)
    state, why = state_and_reason(later)
    assert state == "confirmed" and "expired at" in why and "sign the bundle again" in why
    assert "confirmed\nrefused, so it is not loaded: release 1: " in later.do("status")
    workstation.sign(path=bundle_path(workstation, 1), counter=10)
    later.do("install", bundle_path(workstation, 1))
    assert later.status()["current"] == 2 and later.status()["state"] == "trial"
    later.do("confirm")
    assert state_and_reason(later) == ("confirmed", "") and later.do("boot")
    assert loaded(signed, CLOCK.format(LATER * DAY_S)) == "1.0.0"
    later.do("install", bundle_path(workstation, 1))
    later.do("install", digest(bundle_path(workstation, 1)))
    assert len(later.status()["releases"]) == 2, "it is current as it is"


def test_a_release_from_before_the_policy_is_signed(empty: Device, workstation: Workstation) -> None:
    number = empty.install(bundle_path(workstation, 1))
    empty.do("confirm")
    empty.run("trust", workstation.trust)
    state, why = state_and_reason(empty)
    assert (number, state) == (1, "confirmed") and "make it with `edgekit sign`" in why
    assert "make it with `edgekit sign`" in empty.refused(8, "install", digest(bundle_path(workstation, 1)))
    confirm(empty, bundle_path(workstation, 1))
    assert empty.status()["current"] == 3 and state_and_reason(empty) == ("confirmed", "") and empty.do("boot")


def test_a_new_statement_replaces_one_that_still_holds(signed: Device, workstation: Workstation) -> None:
    """So that it can come before the old one has ended."""
    confirm(signed, bundle_path(workstation, 1))
    workstation.sign(path=bundle_path(workstation, 1), counter=11)
    confirm(signed, bundle_path(workstation, 1))
    assert signed.status()["current"] == 2 and signed.status()["floor"][LABEL]["counter"] == 11


@pytest.mark.parametrize("by_file", [True, False])
def test_a_damaged_bundle_is_received_and_installed_again(
    by_file: bool, empty: Device, valid_bundles: dict[str, Path]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    damage(empty, 1)
    state, why = state_and_reason(empty)
    assert state == "confirmed" and "receive and install it again" in why
    if by_file:
        empty.do("install", valid_bundles["1.0.0"])
    else:
        assert "receive it again" in empty.refused(8, "install", digest(valid_bundles["1.0.0"]))
        empty.install(valid_bundles["1.0.0"])
    empty.do("confirm")
    assert empty.status()["current"] == 2 and state_and_reason(empty) == ("confirmed", "") and empty.do("boot")


def test_a_damaged_file_in_the_store_is_not_called_stored(empty: Device, valid_bundles: dict[str, Path]) -> None:
    sha256 = empty.receive(valid_bundles["1.0.0"])
    path = empty.root / "store" / sha256
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert '"offset": 0, "sha256"' in empty.do("receive", sha256), "it asks for all of it"
    assert not path.exists()
    empty.receive(valid_bundles["1.0.0"])
    assert empty.fault() == ""


def test_a_built_release_that_is_damaged_is_not_taken_up_again(empty: Device, valid_bundles: dict[str, Path]) -> None:
    sha256 = empty.receive(valid_bundles["1.0.0"])
    empty.refused(5, "install", sha256, "--interpreter", "litert")
    damage(empty, 1)
    assert empty.install(valid_bundles["1.0.0"]) == 2


def revoked(on: Device, workstation: Workstation, *numbers: int) -> None:
    """So many releases are confirmed, and those below the last are revoked."""
    for number in numbers:
        confirm(on, bundle_path(workstation, number))
    workstation.revoke(**{LABEL: 10 * numbers[-1] - 5})
    on.do("trust", workstation.trust)


def test_nobody_rolls_back_to_what_the_policy_refuses(signed: Device, workstation: Workstation) -> None:
    revoked(signed, workstation, 1, 2)
    words = signed.refused(8, "rollback")
    assert (
        "release 2 stays current, because the one before it cannot be loaded (release 1: " in words
        and "counter 10 is revoked" in words
    )
    assert words.endswith("install the bundle that you want")
    assert signed.status()["current"] == 2 and state_and_reason(signed) == ("confirmed", "") and signed.do("boot")


def test_a_refused_release_can_be_rolled_back(signed: Device, workstation: Workstation) -> None:
    for number in (1, 2, 3):
        confirm(signed, bundle_path(workstation, number))
    damage(signed, 3)
    damage(signed, 2)
    signed.do("rollback")
    assert signed.status()["current"] == 1 and loaded(signed) == "1.0.0", "the newest that loads"


def test_a_release_on_trial_goes_back_by_hand_whatever_was_before(signed: Device, workstation: Workstation) -> None:
    """Nothing else could be installed meanwhile. What is current then says itself that it is refused."""
    confirm(signed, bundle_path(workstation, 1))
    signed.do("install", bundle_path(workstation, 2))
    damage(signed, 1)
    assert "refused, so it is not loaded: release 1: " in signed.do("rollback")
    assert signed.status()["current"] == 1 and signed.status()["state"] == "confirmed"
    confirm(signed, bundle_path(workstation, 3))
    assert loaded(signed) == "3.0.0"


def test_a_device_by_itself_goes_back_to_the_newest_release_that_loads(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    empty.install(valid_bundles["3.0.0"], "--tries", 1)
    empty.do("boot")
    damage(empty, 2)
    assert empty.do("boot").strip().endswith("releases/1/bundle.edge.zip")
    assert (empty.status()["current"], *state_and_reason(empty)) == (1, "confirmed", "")


def test_a_way_back_that_was_cut_short_ends_there_too(empty: Device, valid_bundles: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        empty.confirmed(valid_bundles[version])
    damage(empty, 2)
    (empty.root / "releases" / "3" / "failed.json").write_text('{"why": "a kill"}\n')
    assert empty.do("boot").strip().endswith("releases/1/bundle.edge.zip")


def test_if_no_release_loads_the_current_one_stays_and_the_error_says_so(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(valid_bundles[version])
    for number in (1, 2):
        damage(empty, number)
    empty.do("rollback")
    state, why = state_and_reason(empty)
    assert (empty.status()["current"], state) == (1, "confirmed") and "receive and install it again" in why
