"""What is reported of devices, the worst exit code, and the journal between two commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.core.errors import ResourceError
from edgekit.fleet.devices.device_errors import DeviceError, HostKeyError, Unreachable
from edgekit.fleet.devices.inventory import Host, Inventory
from edgekit.fleet.rollout import journal, outcomes
from edgekit.fleet.rollout.outcomes import Outcome

HOST = Host("door-1", "pi4", "10.0.0.5", "pi", 22)


def test_the_worst_exit_code_is_about_the_bundle_before_it_is_about_a_line() -> None:
    def worst(*codes: int) -> int:
        return outcomes.worst_exit_code(Outcome(HOST, exit_code=code) for code in codes)

    assert worst() == worst(0, 0) == 0
    assert worst(0, 7) == 7 and worst(7, 5) == 5 and worst(5, 8, 7) == 8 and worst(4, 7) == 4
    assert worst(0, 6, 7) == 6


def test_counts_are_one_line() -> None:
    states = ["confirmed", "confirmed", "on probation", "sent", "failed", "unreachable", "waiting"]
    found = outcomes.count_line([Outcome(HOST, state) for state in states])
    assert found == "waiting 1 · sent 4/7 · on probation 1 · confirmed 2 · failed 1 · unreachable 1"


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (Unreachable("pi@10.0.0.5:22: nobody there"), "unreachable", 7),
        (HostKeyError("pi@10.0.0.5:22: nobody there"), "failed", 8),
        (DeviceError("nobody there", 5), "failed", 5),
    ],
)
def test_an_error_becomes_a_state(error: Exception, state: str, code: int) -> None:
    found = outcomes.failed_outcome(Outcome(HOST, "sent", 3), error)  # type: ignore[arg-type]
    assert (found.state, found.exit_code, found.release) == (state, code, 3)
    assert found.line() == f"door-1: {state}: nobody there"
    assert found.record("a")["address"] == "pi@10.0.0.5:22"


@pytest.fixture
def fleet(tmp_path: Path) -> Inventory:
    (tmp_path / "hosts.yaml").touch()
    return Inventory(tmp_path / "hosts.yaml", (HOST,))


def test_what_a_device_has_confirmed_is_known_to_the_next_command(fleet: Inventory) -> None:
    with journal.open_journal(fleet, "push") as notes:
        assert notes.state(HOST, "key") == "waiting"
        notes.note(Outcome(HOST, "confirmed", 4), "key")
    with journal.open_journal(fleet, "push") as notes:
        assert notes.state(HOST, "key") == "confirmed"
        assert notes.known(HOST, "key") == "it had confirmed the bundle as release 4 before"
        assert notes.state(HOST, "another parcel") == "waiting"
        assert notes.state(Host("door-1", "pi4", "10.0.0.6", "pi", 22), "key") == "waiting", (
            "another device of this name"
        )
        for state, known in (("on probation", "sent"), ("sent", "sent"), ("failed", "waiting"), ("sending", "waiting")):
            notes.note(Outcome(HOST, state, 5), "key")
            assert notes.state(HOST, "key") == known
        assert notes.known(HOST, "key") == ""


def test_a_device_that_cannot_be_reached_keeps_its_recorded_progress(fleet: Inventory) -> None:
    with journal.open_journal(fleet, "push") as notes:
        notes.note(Outcome(HOST, "confirmed", 4), "key")
        notes.note(Outcome(HOST, "sending"), "key")
        notes.note(Outcome(HOST, "unreachable"), "key")
        assert notes.state(HOST, "key") == "confirmed" and notes.state(HOST, "another") == "waiting"
        notes.note(Outcome(HOST, "unreachable"), "another")
        assert notes.state(HOST, "key") == "waiting"


def test_a_note_that_cannot_be_written_is_a_warning_and_the_command_goes_on(
    fleet: Inventory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (fleet.path.parent / journal.FOLDER / "hosts.yaml.json" / "x").mkdir(parents=True)
    monkeypatch.setattr(journal, "EVERY_S", 0.0)
    with journal.open_journal(fleet, "push") as notes:
        for state in ("sent", "installing", "confirmed"):
            notes.note(Outcome(HOST, state, 4), "key")
        assert notes.state(HOST, "key") == "confirmed"
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1 and "cannot be written" in stderr and "hosts.yaml.json" in stderr


@pytest.mark.parametrize("name", [".edgekit", ".edgekit/fleet", ".edgekit/fleet/hosts.yaml.lock"])
def test_a_folder_that_cannot_be_used_is_named_with_the_fix(name: str, fleet: Inventory) -> None:
    path = fleet.path.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("lock") else path.write_text("x")
    with pytest.raises(
        ResourceError, match="cannot be locked .* needed beside hosts.yaml: repair it, or copy hosts.yaml"
    ):
        journal.open_journal(fleet, "push").__enter__()


def test_a_second_command_on_the_same_fleet_is_refused_in_one_line(fleet: Inventory) -> None:
    with (
        journal.open_journal(fleet, "edgekit fleet push a"),
        pytest.raises(ResourceError, match="in use by `edgekit fleet push a`"),
    ):
        journal.open_journal(fleet, "edgekit fleet push b").__enter__()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9, "hosts": {}}', '{"format": 1, "hosts": [1]}', "\x00"])
def test_a_damaged_note_is_as_none(text: str, fleet: Inventory) -> None:
    with journal.open_journal(fleet, "push") as notes:
        notes.note(Outcome(HOST, "confirmed", 4), "key")
    (path,) = fleet.path.parent.glob(".edgekit/fleet/hosts.yaml.json")
    assert json.loads(path.read_text())["hosts"]["door-1"]["state"] == "confirmed"
    path.write_text(text)
    with journal.open_journal(fleet, "push") as notes:
        assert notes.state(HOST, "key") == "waiting"


def test_what_is_noted_is_on_the_disk_also_where_the_command_dies(fleet: Inventory) -> None:
    with pytest.raises(KeyboardInterrupt), journal.open_journal(fleet, "push") as notes:
        for number in range(100):
            notes.note(Outcome(Host(f"h{number}", host=f"h{number}"), "confirmed", 1), "key")
        raise KeyboardInterrupt
    with journal.open_journal(fleet, "push") as notes:
        hosts = [Host(f"h{number}", host=f"h{number}") for number in range(100)]
        assert {notes.state(host, "key") for host in hosts} == {"confirmed"}
