"""A device in signed mode: what its policy does not trust is neither installed nor started, whoever brings it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.device.trust.signed_json import format_time
from edgekit.device.trust.statement import NAMESPACE, RELEASE, statement_path
from edgekit.fleet.signing import ssh_signing
from tests.device.releases import kills
from tests.device.releases.device import Device
from tests.device.releases.kills import Kills
from tests.device.releases.test_killed import STATES
from tests.device.trust.workstation import DAY_S, LABEL, YEAR_S, Workstation

pytestmark = pytest.mark.processes

CLOCK = "import time; right = time.time; time.time = lambda: right() + {}\n"
NO_KEYGEN = "from edgekit.device.trust import ssh_keygen; ssh_keygen.PROGRAMS = ()\n"
COMMAND = "import sys; from edgekit.runner.cli import main; sys.exit(main(sys.argv[1:]))"
LOAD = "from edgekit.runner import load; print(load('current', trial=False).manifest.version)"


def bundle_path(workstation: Workstation, number: int) -> Path:
    """A bundle, beside its statement and signature."""
    return workstation.home / f"{number}.0.0.edge.zip"


def confirm(on: Device, path: Path) -> None:
    on.do("install", path)
    on.do("confirm")


def test_a_signed_bundle_is_installed_started_and_loaded(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    found = signed.status()
    assert found["signed"] and found["floor"] == {LABEL: {"epoch": 1, "counter": 10}}
    record = json.loads((signed.root / "current" / "install.json").read_text())["trusted"]
    assert record["signers"] == ["anna"] and record["counter"] == 10
    assert signed.do("boot").strip().endswith("releases/1/bundle.edge.zip")
    assert loaded(signed) == "1.0.0"
    assert "signed mode: bundles that the policy in" in signed.do("status")


def loaded(on: Device, before: str = "", **more: str) -> str:
    """The version that a program gets; the last line of its error where it gets none."""
    done = subprocess.run(
        [sys.executable, "-c", before + LOAD], capture_output=True, text=True, check=False, env=on.variables(**more)
    )
    return (done.stdout if done.returncode == 0 else done.stderr.strip().splitlines()[-1]).strip()


def unsigned(workstation: Workstation) -> str:
    statement_path(bundle_path(workstation, 2)).unlink()
    return "make it with `edgekit sign`"


def without_signature(workstation: Workstation) -> str:
    Path(f"{statement_path(bundle_path(workstation, 2))}.sig").unlink()
    return "the bundle is not signed"


def by_a_thief(workstation: Workstation) -> str:
    sign(workstation, "thief", statement_path(bundle_path(workstation, 2)).read_bytes())
    return "is not a signer of this policy"


def of_another_bundle(workstation: Workstation) -> str:
    for end in ("", ".sig"):
        shutil.copyfile(
            f"{statement_path(bundle_path(workstation, 3))}{end}", f"{statement_path(bundle_path(workstation, 2))}{end}"
        )
    return "the signed statement is about"


def changed_in_one_byte(workstation: Workstation) -> str:
    path = statement_path(bundle_path(workstation, 2))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    return "does not verify"


def expired(workstation: Workstation) -> str:
    """It was signed a year ago, for 90 days."""
    path = statement_path(bundle_path(workstation, 2))
    values = json.loads(path.read_bytes())
    signed_s = time.time() - YEAR_S
    values["predicate"][RELEASE] |= {"time": format_time(signed_s), "expires": format_time(signed_s + 90 * DAY_S)}
    sign(workstation, "anna", json.dumps(values).encode())
    return "expired at"


def sign(workstation: Workstation, key: str, data: bytes) -> None:
    """Any statement about 2.0.0, with a real signature."""
    path = statement_path(bundle_path(workstation, 2))
    path.write_bytes(data)
    Path(f"{path}.sig").write_bytes(ssh_signing.sign(data, workstation.key(key), NAMESPACE))


FAULTS = [unsigned, without_signature, by_a_thief, of_another_bundle, changed_in_one_byte, expired]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_trusted_is_refused_and_changes_nothing(
    fault: object, signed: Device, workstation: Workstation
) -> None:
    confirm(signed, bundle_path(workstation, 1))
    assert callable(fault)
    words = fault(workstation)
    assert words in signed.refused(8, "install", bundle_path(workstation, 2))
    found = signed.status()
    assert (found["current"], found["state"]) == (1, "confirmed") and signed.fault() == ""
    assert not (signed.root / "releases" / "2" / "proof.json").exists(), "it was never opened"
    assert loaded(signed) == "1.0.0"


def test_a_digest_alone_is_not_enough(signed: Device, workstation: Workstation) -> None:
    """As when a bundle is sent without its statement."""
    assert "make it with `edgekit sign`" in signed.refused(8, "install", signed.receive(bundle_path(workstation, 1)))
    files = [
        signed.receive(path)
        for path in (
            bundle_path(workstation, 1),
            statement_path(bundle_path(workstation, 1)),
            Path(f"{statement_path(bundle_path(workstation, 1))}.sig"),
        )
    ]
    signed.do("install", files[0], "--statement", files[1], "--signature", files[2])
    assert signed.status()["state"] == "trial"


def test_versions_only_rise_but_the_way_back_stays_open(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    confirm(signed, bundle_path(workstation, 2))
    assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}
    assert "counter 10 is older than epoch 1, counter 20" in signed.refused(8, "install", bundle_path(workstation, 1))
    signed.do("rollback", "--release", 2)
    assert signed.status()["current"] == 1 and loaded(signed) == "1.0.0"
    signed.do("boot")
    assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}, "a thief cannot lower it so"
    confirm(signed, bundle_path(workstation, 3))
    assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 30}}


def test_a_release_on_trial_raises_no_floor(signed: Device, workstation: Workstation) -> None:
    """Else a bundle that fails would keep the device from the one that works."""
    confirm(signed, bundle_path(workstation, 1))
    signed.do("install", bundle_path(workstation, 3))
    signed.do("rollback")
    confirm(signed, bundle_path(workstation, 2))
    assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}


def test_a_revoked_key_ends_what_it_signed_at_every_door(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    workstation.add("bert")
    workstation.revoke("anna")
    done = signed.run("trust", workstation.trust)
    assert done.returncode == 0 and "signers bert; at least 1 must sign" in done.stdout
    assert done.stderr.startswith("edgerun: release 1: ") and "is revoked; sign with a key of" in done.stderr
    assert "is revoked" in signed.refused(8, "boot")
    assert "is revoked" in signed.refused(8, "install", bundle_path(workstation, 2))
    assert "is revoked" in loaded(signed)
    workstation.sign("bert", path=bundle_path(workstation, 2), counter=20)
    confirm(signed, bundle_path(workstation, 2))
    assert loaded(signed) == "2.0.0"


def test_a_release_that_is_revoked_by_its_counter_loads_no_more(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    workstation.revoke(**{LABEL: 15})
    signed.run("trust", workstation.trust)
    assert "counter 10 is revoked" in signed.refused(8, "boot") and "counter 10 is revoked" in loaded(signed)
    confirm(signed, bundle_path(workstation, 2))
    assert loaded(signed) == "2.0.0"


def test_another_name_in_the_statement_sidesteps_no_version(signed: Device, workstation: Workstation) -> None:
    """Versions and revocations go by the name that a signer writes, so it has to be that of the bundle."""
    confirm(signed, bundle_path(workstation, 2))
    path = statement_path(bundle_path(workstation, 1))
    values = json.loads(path.read_bytes())
    values["predicate"][RELEASE]["name"] = "other"
    path.write_bytes(json.dumps(values).encode())
    Path(f"{path}.sig").write_bytes(ssh_signing.sign(path.read_bytes(), workstation.key("anna"), NAMESPACE))
    words = "is called 'tiny' in its manifest, but 'other' in its statement"
    assert words in signed.refused(8, "install", bundle_path(workstation, 1))
    assert signed.status()["current"] == 1 and signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}
    assert words in signed.refused(8, "verify", bundle_path(workstation, 1), "--trust", workstation.trust)


def test_a_file_of_any_name_is_installed_with_the_signatures_beside_it(
    signed: Device, workstation: Workstation
) -> None:
    """Brackets are no pattern here, and what an editor leaves is no signature."""
    odd = workstation.home / "[x]-1.edge.zip"
    for end in ("", ".intoto.json", ".intoto.json.sig"):
        shutil.copyfile(f"{bundle_path(workstation, 1)}{end}", f"{odd}{end}")
    Path(f"{odd}.intoto.json.sig~").write_text("what an editor leaves")
    confirm(signed, odd)
    assert len(signed.status()["releases"][0]["files"]) == 3


def test_a_new_epoch_undoes_a_counter_that_a_thief_drove_up(signed: Device, workstation: Workstation) -> None:
    workstation.sign(path=bundle_path(workstation, 3), counter=2**31)
    confirm(signed, bundle_path(workstation, 3))
    assert "is older than epoch 1, counter 2147483648" in signed.refused(8, "install", bundle_path(workstation, 2))
    workstation.rotate(anna="anna-2")
    signed.run("trust", workstation.trust)
    workstation.sign("anna-2", path=bundle_path(workstation, 2), counter=1)
    confirm(signed, bundle_path(workstation, 2))
    assert signed.status()["floor"] == {LABEL: {"epoch": 2, "counter": 1}}


def test_two_of_two_must_have_signed(signed: Device, workstation: Workstation) -> None:
    workstation.add("bert")
    workstation.rotate(threshold=2)
    signed.do("trust", workstation.trust)
    workstation.sign(path=bundle_path(workstation, 1), counter=10)
    assert "signed by anna, but the policy requires 2" in signed.refused(8, "install", bundle_path(workstation, 1))
    workstation.sign("bert", path=bundle_path(workstation, 1), cosign=True)
    confirm(signed, bundle_path(workstation, 1))
    record = json.loads((signed.root / "current" / "install.json").read_text())["trusted"]
    assert record["signers"] == ["anna", "bert"]


def test_without_ssh_keygen_nothing_is_trusted_and_the_error_names_it(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    words = "install the package openssh-client"
    without = Device(signed.root, signed.environment, (sys.executable, "-c", NO_KEYGEN + COMMAND))
    assert words in without.refused(8, "boot")
    assert words in without.refused(8, "install", bundle_path(workstation, 2))
    assert words in loaded(signed, NO_KEYGEN)
    found = signed.status()
    assert found["current"] == 1 and loaded(signed) == "1.0.0"
    assert [each["state"] for each in found["releases"]] == ["confirmed", "built"], "the bundle has not failed"
    confirm(signed, bundle_path(workstation, 2))
    assert signed.status()["current"] == 2


def at_another_time(on: Device, days: float) -> Device:
    """The same device, whose clock is wrong by so much."""
    return Device(on.root, on.environment, (sys.executable, "-c", CLOCK.format(days * DAY_S) + COMMAND))


@pytest.mark.parametrize("days", [-3653, -1])
def test_a_clock_that_goes_back_revives_nothing_and_stops_nothing(
    days: int, signed: Device, workstation: Workstation
) -> None:
    """A board without a battery starts in 1970, or where it was switched off."""
    confirm(signed, bundle_path(workstation, 1))
    past = at_another_time(signed, days)
    past.do("boot")
    assert loaded(signed, CLOCK.format(days * DAY_S)) == "1.0.0"
    expired(workstation)
    assert "expired at" in past.refused(8, "install", bundle_path(workstation, 2))
    past.do("install", bundle_path(workstation, 3))
    assert past.status()["state"] == "trial"


def test_a_clock_ten_years_ahead_refuses_and_says_what_time_it_has(signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    message = at_another_time(signed, 3653).refused(8, "boot")
    assert "expired at" in message and "or set the clock" in message
    assert signed.do("boot"), "and the wrong time is not remembered"


def test_a_policy_is_taken_over_by_one_command_at_a_time(signed: Device, workstation: Workstation) -> None:
    """The lock is that of all commands; what a kill leaves of a policy is put away by the next one."""
    left = signed.root / "trust" / ".policy.json.9.tmp"
    left.write_text("{")
    signed.do("status")
    assert not left.exists()
    old = Path(shutil.copytree(workstation.trust, workstation.home / "old"))
    workstation.add("bert")
    signed.do("trust", workstation.trust)
    assert "version 2, but this device has already seen version 3" in signed.refused(8, "trust", old)


def test_kills_in_signed_mode_leave_the_old_release_or_the_new_one(signed: Device, workstation: Workstation) -> None:
    """A floor that a kill kept from being written is raised by the next command."""
    confirm(signed, bundle_path(workstation, 1))
    signed.do("install", bundle_path(workstation, 2))
    found = Kills()
    kills.at_every_write(signed, ["confirm", "--release", 2], found, calls=STATES)
    assert found.faults == [] and found.tried.total() >= 2, str(found)
    assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}
