"""A current release that loads no more: it is said, it can be signed again or repaired, nobody is led back to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.releases.device import Device, digest
from tests.device.releases.test_signed import CLOCK, DAY_S, at, at_another_time, confirm, loaded
from tests.device.trust.desk import LABEL, Desk

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


def said(on: Device) -> tuple[str, str]:
    """State, and why nothing loads the current release."""
    found = on.status()
    return found["state"], found.get("refused", "")


def test_a_release_whose_statement_has_ended_is_signed_again(signed: Device, desk: Desk) -> None:
    desk.sign(path=at(desk, 1), counter=10, days=90)
    confirm(signed, at(desk, 1))
    assert said(signed) == ("confirmed", "")
    later = at_another_time(signed, LATER)
    state, why = said(later)
    assert state == "confirmed" and "expired at" in why and "sign the bundle again" in why
    assert "confirmed\nrefused, so it is not loaded: release 1: " in later.do("status")
    desk.sign(path=at(desk, 1), counter=10)
    later.do("install", at(desk, 1))
    assert later.status()["current"] == 2 and later.status()["state"] == "trial"
    later.do("confirm")
    assert said(later) == ("confirmed", "") and later.do("boot")
    assert loaded(signed, CLOCK.format(LATER * DAY_S)) == "1.0.0"
    later.do("install", at(desk, 1))
    later.do("install", digest(at(desk, 1)))
    assert len(later.status()["releases"]) == 2, "it is current as it is"


def test_a_release_from_before_the_policy_is_signed(empty: Device, desk: Desk) -> None:
    number = empty.install(at(desk, 1))
    empty.do("confirm")
    empty.run("trust", desk.trust)
    state, why = said(empty)
    assert (number, state) == (1, "confirmed") and "make it with `edgekit sign`" in why
    assert "make it with `edgekit sign`" in empty.refused(8, "install", digest(at(desk, 1)))
    confirm(empty, at(desk, 1))
    assert empty.status()["current"] == 3 and said(empty) == ("confirmed", "") and empty.do("boot")


def test_a_new_statement_replaces_one_that_still_holds(signed: Device, desk: Desk) -> None:
    """So that it can come before the old one has ended."""
    confirm(signed, at(desk, 1))
    desk.sign(path=at(desk, 1), counter=11)
    confirm(signed, at(desk, 1))
    assert signed.status()["current"] == 2 and signed.status()["floor"][LABEL]["counter"] == 11


@pytest.mark.parametrize("by_file", [True, False])
def test_a_damaged_bundle_is_received_and_installed_again(by_file: bool, empty: Device, sound: dict[str, Path]) -> None:
    empty.confirmed(sound["1.0.0"])
    damage(empty, 1)
    state, why = said(empty)
    assert state == "confirmed" and "receive and install it again" in why
    if by_file:
        empty.do("install", sound["1.0.0"])
    else:
        assert "receive it again" in empty.refused(8, "install", digest(sound["1.0.0"]))
        empty.install(sound["1.0.0"])
    empty.do("confirm")
    assert empty.status()["current"] == 2 and said(empty) == ("confirmed", "") and empty.do("boot")


def test_a_damaged_file_in_the_store_is_not_called_stored(empty: Device, sound: dict[str, Path]) -> None:
    sha256 = empty.receive(sound["1.0.0"])
    path = empty.root / "store" / sha256
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert '"offset": 0, "sha256"' in empty.do("receive", sha256), "it asks for all of it"
    assert not path.exists()
    empty.receive(sound["1.0.0"])
    assert empty.fault() == ""


def test_a_built_release_that_is_damaged_is_not_taken_up_again(empty: Device, sound: dict[str, Path]) -> None:
    sha256 = empty.receive(sound["1.0.0"])
    empty.refused(5, "install", sha256, "--interpreter", "litert")
    damage(empty, 1)
    assert empty.install(sound["1.0.0"]) == 2


def revoked(on: Device, desk: Desk, *numbers: int) -> None:
    """So many releases are confirmed, and those below the last are revoked."""
    for number in numbers:
        confirm(on, at(desk, number))
    desk.revoke(**{LABEL: 10 * numbers[-1] - 5})
    on.do("trust", desk.trust)


def test_nobody_rolls_back_to_what_the_policy_refuses(signed: Device, desk: Desk) -> None:
    revoked(signed, desk, 1, 2)
    words = signed.refused(8, "rollback")
    assert (
        "release 2 stays current, because the one before it cannot be loaded (release 1: " in words
        and "counter 10 is revoked" in words
    )
    assert words.endswith("install the bundle that you want")
    assert signed.status()["current"] == 2 and said(signed) == ("confirmed", "") and signed.do("boot")


def test_but_from_a_refused_one_the_way_back_is_open(signed: Device, desk: Desk) -> None:
    for number in (1, 2, 3):
        confirm(signed, at(desk, number))
    damage(signed, 3)
    damage(signed, 2)
    signed.do("rollback")
    assert signed.status()["current"] == 1 and loaded(signed) == "1.0.0", "the newest that loads"


def test_a_release_on_trial_goes_back_by_hand_whatever_was_before(signed: Device, desk: Desk) -> None:
    """Nothing else could be installed meanwhile. What is current then says itself that it is refused."""
    confirm(signed, at(desk, 1))
    signed.do("install", at(desk, 2))
    damage(signed, 1)
    assert "refused, so it is not loaded: release 1: " in signed.do("rollback")
    assert signed.status()["current"] == 1 and signed.status()["state"] == "confirmed"
    confirm(signed, at(desk, 3))
    assert loaded(signed) == "3.0.0"


def test_a_device_by_itself_goes_back_to_the_newest_release_that_loads(empty: Device, sound: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(sound[version])
    empty.install(sound["3.0.0"], "--tries", 1)
    empty.do("boot")
    damage(empty, 2)
    assert empty.do("boot").strip().endswith("releases/1/bundle.edge.zip")
    assert (empty.status()["current"], *said(empty)) == (1, "confirmed", "")


def test_a_way_back_that_was_cut_short_ends_there_too(empty: Device, sound: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        empty.confirmed(sound[version])
    damage(empty, 2)
    (empty.root / "releases" / "3" / "failed.json").write_text('{"why": "a kill"}\n')
    assert empty.do("boot").strip().endswith("releases/1/bundle.edge.zip")


def test_where_none_loads_it_stays_the_one_before_and_that_is_said(empty: Device, sound: dict[str, Path]) -> None:
    for version in ("1.0.0", "2.0.0"):
        empty.confirmed(sound[version])
    for number in (1, 2):
        damage(empty, number)
    empty.do("rollback")
    state, why = said(empty)
    assert (empty.status()["current"], state) == (1, "confirmed") and "receive and install it again" in why
