"""Signed bundles and policies brought to real devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgekit.device.releases.current_release import statement_name
from tests.device.trust.workstation import Workstation, set_up
from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet


@pytest.fixture
def signer(tmp_path: Path, bundles: dict[str, Path]) -> Workstation:
    """Anna has signed version 1.0.0 of a bundle that runs."""
    workstation = set_up(tmp_path / "signer") if (tmp_path / "signer").mkdir() is None else None
    assert workstation
    for path in tmp_path.glob("signer/a.edge.zip*"):
        path.unlink()
    shutil.copy(bundles["1.0.0"], workstation.bundle)
    workstation.sign(counter=5)
    return workstation


def test_a_policy_and_a_signed_bundle_put_a_device_into_signed_mode(fleet: Fleet, signer: Workstation) -> None:
    found = fleet.report(0, "push", signer.bundle, "--trust", signer.trust, "--confirm")
    assert [each["state"] for each in found.values()] == ["confirmed"] * 4
    status = fleet.status(2)
    assert status["signed"] and status["floor"] == {"tiny": {"epoch": 1, "counter": 5}}
    assert {each["signed"] for each in fleet.report(0, "status").values()} == {True}


def test_a_device_in_signed_mode_refuses_what_nobody_signed_and_gets_no_byte_of_it(
    fleet: Fleet, signer: Workstation
) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    found = fleet.report(8, "push", fleet.bundles["2.0.0"], "--confirm", "--only", "d0", "--only", "d1")
    assert "nobody has signed this bundle; use `edgekit sign`" in found["d0"]["why"]
    assert found["d1"]["state"] == "sent" and "d0 rejected it" in found["d1"]["why"]
    assert len(fleet.status(0)["store"]) == 3


@pytest.mark.parametrize("command", ["bench", "doctor"])
def test_only_a_signed_bundle_is_timed_or_examined_in_signed_mode(
    command: str, fleet: Fleet, signer: Workstation, tmp_path: Path
) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    calls = (fleet.rig.device(0) / ".calls").stat().st_size
    found = fleet.report(8, command, fleet.bundles["2.0.0"], "--only", "d0")
    assert found["d0"]["why"] == "is in signed mode, but nobody has signed this bundle; use `edgekit sign`"
    assert (fleet.rig.device(0) / ".calls").stat().st_size == calls + 1, "only hello was sent"
    newer = tmp_path / "newer.edge.zip"
    shutil.copy(fleet.bundles["2.0.0"], newer)
    signer.sign(path=newer, counter=6)
    for each in (signer.bundle, newer):
        fleet.run(0, command, each, "--only", "d0")
    assert len(fleet.status(0)["releases"]) == 1


def test_a_signature_of_another_bundle_is_refused_by_the_device_that_is_to_time_it(
    fleet: Fleet, signer: Workstation, tmp_path: Path
) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    newer = tmp_path / "newer.edge.zip"
    shutil.copy(fleet.bundles["2.0.0"], newer)
    signer.sign(path=newer, counter=6)
    Path(f"{statement_name(str(newer))}.sig").write_bytes(signer.signature.read_bytes())
    assert fleet.report(8, "bench", newer, "--only", "d0")["d0"]["state"] == "failed"


def test_a_bundle_that_is_signed_again_reaches_devices_that_have_it(fleet: Fleet, signer: Workstation) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    signer.sign(counter=6)
    assert fleet.states(0, "push", signer.bundle, "--confirm", "--only", "d0") == ["confirmed"]
    status = fleet.status(0)
    assert (status["current"], status["floor"]) == (2, {"tiny": {"epoch": 1, "counter": 6}})
    assert fleet.states(0, "push", signer.bundle, "--confirm", "--only", "d0") == ["confirmed"]
    assert fleet.status(0)["current"] == 2


def test_another_name_in_the_statement_is_refused_on_the_workstation(fleet: Fleet, signer: Workstation) -> None:
    signer.forge(name="other")
    done = fleet.rig.edgekit("fleet", "push", signer.bundle, "--to", fleet.hosts, "--trust", signer.trust)
    assert done.returncode == 8 and "is called 'tiny' in its manifest, but 'other' in its statement" in done.stderr


def test_an_older_counter_than_the_confirmed_one_is_refused_there(
    fleet: Fleet, signer: Workstation, tmp_path: Path
) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    older = tmp_path / "older.edge.zip"
    shutil.copy(fleet.bundles["2.0.0"], older)
    signer.sign(path=older, counter=4)
    found = fleet.report(8, "push", older, "--confirm", "--only", "d0")
    assert "counter 4 is older than epoch 1, counter 5" in found["d0"]["why"]


def test_what_the_policy_does_not_trust_is_refused_on_the_workstation(fleet: Fleet, signer: Workstation) -> None:
    Path(statement_name(str(signer.bundle))).write_bytes(signer.statement.read_bytes() + b" ")
    done = fleet.rig.edgekit("fleet", "push", signer.bundle, "--to", fleet.hosts, "--trust", signer.trust)
    assert done.returncode == 8 and done.stderr.count("\n") == 1
    assert not list(fleet.rig.device(0).iterdir())


def test_a_newer_policy_reaches_devices_that_have_the_bundle(fleet: Fleet, signer: Workstation) -> None:
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    signer.add("bert")
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, "--confirm", "--only", "d0")
    path = fleet.rig.device(0) / ".edge" / "trust" / "policy.json"
    assert json.loads(path.read_text())["version"] == 3 and fleet.status(0)["current"] == 1
    assert not list((fleet.rig.device(0) / ".edge").glob(".policy*"))


def test_a_revocation_that_is_pushed_ends_what_a_stolen_key_signed(
    fleet: Fleet, signer: Workstation, tmp_path: Path
) -> None:
    """Anna's key was stolen; Bert signs the next version, and the policy that revokes her comes along with it."""
    only = ("--confirm", "--only", "d0")
    fleet.run(0, "push", signer.bundle, "--trust", signer.trust, *only)
    stolen = tmp_path / "stolen.edge.zip"
    shutil.copy(fleet.bundles["2.0.0"], stolen)
    signer.sign(path=stolen, counter=2**31)
    signer.add("bert")
    signer.revoke("anna")
    signer.sign("bert", counter=6)
    assert fleet.states(0, "push", signer.bundle, "--trust", signer.trust, *only) == ["confirmed"]
    assert "is revoked; sign with a key of the policy" in fleet.report(8, "push", stolen, *only)["d0"]["why"]
    assert fleet.status(0)["current"] == 2
