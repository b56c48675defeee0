"""`edgekit trust`: the policy from its first version to the last, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgekit.device.trust import policy
from tests.cli.test_cli import edgekit
from tests.device.trust.workstation import YEAR_S, Workstation, make_key
from tests.fleet.test_sign import run_edgekit


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of everybody, and the first version of a policy."""
    home = tmp_path_factory.mktemp("keys")
    for name in ("root", "anna", "anna-2", "bert"):
        make_key(home / name)
    make_key(home / "carla", "ecdsa")
    make_key(home / "rsa", "rsa")
    return home


@pytest.fixture
def workstation(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workstation:
    """The present folder."""
    home = Path(shutil.copytree(keys, tmp_path / "workstation"))
    monkeypatch.chdir(home)
    return Workstation(home)


@pytest.fixture(scope="module")
def policed(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys, and a policy with anna as its signer, whose first key was revoked."""
    home = Path(shutil.copytree(keys, tmp_path_factory.mktemp("policed") / "workstation"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        run_edgekit(0, "trust", "init", "trust", "--root", "root")
        run_edgekit(0, "trust", "add", "trust", "anna", "anna-2.pub", "--root", "root")
        run_edgekit(0, "trust", "rotate", "trust", "anna=anna.pub", "--root", "root")
        run_edgekit(0, "trust", "revoke", "trust", "--below", "digits=7", "--root", "root")
    (home / "cut.pub").write_text((home / "bert.pub").read_text()[:50])
    return home


def test_a_policy_goes_through_its_life(workstation: Workstation) -> None:
    out = run_edgekit(0, "trust", "init", "trust", "--root", "root")
    assert (
        "version 1, epoch 1" in out
        and "nobody yet; at least 1 must sign" in out
        and "NOTE        too few signers" in out
    )
    assert sorted(path.name for path in workstation.trust.iterdir()) == [policy.POLICY, policy.SIGNATURE, policy.ROOT]
    assert "version 2" in run_edgekit(0, "trust", "add", "trust", "anna", "anna.pub", "--root", "root")
    out = run_edgekit(0, "trust", "add", "trust", "carla", "carla.pub", "--root", "root", "--until", "2999-01-31")
    assert "version 3" in out and "signers     anna, carla" in out and "NOTE" not in out
    before = policy.read_policy(workstation.trust)
    assert before.signers["carla"].expires_s and before.signers["anna"].expires_s is None
    out = run_edgekit(0, "trust", "rotate", "trust", "anna=anna-2.pub", "--root", "root", "--threshold", "2")
    assert "version 4, epoch 2" in out and "at least 2 must sign" in out
    out = run_edgekit(0, "trust", "revoke", "trust", "carla", "--below", "digits=7", "--root", "root")
    assert "version 5, epoch 2" in out and "NOTE" in out
    assert "version 6" in run_edgekit(0, "trust", "renew", "trust", "--days", "730", "--root", "root")
    found = policy.read_policy(workstation.trust)
    assert (found.version, found.epoch, found.threshold, found.minimum) == (6, 2, 2, {"digits": 7})
    assert list(found.signers) == ["anna"] and found.signers["anna"].key == policy_key(workstation, "anna-2")
    assert found.revoked == (policy_key(workstation, "anna"), policy_key(workstation, "carla"))
    assert abs(found.expires_s - found.time_s - 2 * YEAR_S) < 1 and found.time_s >= before.time_s
    assert (
        run_edgekit(0, "trust", "rotate", "trust", "--root", "root")
        and policy.read_policy(workstation.trust).minimum == {}
    )


def policy_key(workstation: Workstation, name: str) -> str:
    return " ".join((workstation.home / f"{name}.pub").read_text().split()[:2])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["init", "trust", "--root", "root"], 8, "holds a policy already"),
        (["add", "trust", "anna", "bert.pub", "--root", "root"], 2, "is a signer already"),
        (["add", "trust", "bert", "anna.pub", "--root", "root"], 2, "is the key of anna"),
        (["add", "trust", "be*t", "bert.pub", "--root", "root"], 2, "not a name"),
        (["add", "trust", "bert", "rsa.pub", "--root", "root"], 8, "ssh-keygen -t ed25519"),
        (["add", "trust", "bert", "bert", "--root", "root"], 8, "it must be one line of an OpenSSH public key"),
        (["add", "trust", "bert", "cut.pub", "--root", "root"], 8, "is damaged"),
        (["add", "trust", "bert", "none.pub", "--root", "root"], 8, "none.pub: cannot be read"),
        (["add", "trust", "bert", "bert.pub", "--root", "root", "--until", "soon"], 2, "write 2027-01-31"),
        (["add", "trust", "bert", "bert.pub", "--root", "root", "--until", "2020-01-01"], 2, "which has passed"),
        (["add", "trust", "bert", "bert.pub", "--root", "anna"], 8, "not by the root"),
        (["add", "none", "bert", "bert.pub", "--root", "root"], 8, "policy.json: cannot be read"),
        (["add", "trust", "bert", "bert.pub", "--root", "gone"], 8, "gone: no such key"),
        (["revoke", "trust", "--root", "root"], 2, "names no signer"),
        (["revoke", "trust", "bert", "--root", "root"], 2, "not a signer of this policy, which has anna"),
        (["revoke", "trust", "--below", "digits", "--root", "root"], 2, "write BUNDLE=COUNTER"),
        (["revoke", "trust", "--below", "digits=6", "--root", "root"], 2, "the policy already requires 7"),
        (["revoke", "trust", "--below", "di gits=6", "--root", "root"], 2, "not a name"),
        (["rotate", "trust", "bert=bert.pub", "--root", "root"], 2, "not a signer of this policy"),
        (["rotate", "trust", "anna", "--root", "root"], 2, "write NAME=KEY.pub"),
        (["rotate", "trust", "anna=anna.pub", "--root", "root"], 2, "is the key of anna"),
        (["rotate", "trust", "anna=anna-2.pub", "--root", "root"], 2, "was revoked"),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    arguments: list[str], code: int, words: str, policed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workstation = Workstation(Path(shutil.copytree(policed, tmp_path / "workstation")))
    monkeypatch.chdir(workstation.home)
    before = {path.name: path.read_bytes() for path in workstation.trust.glob("*")}
    assert words in run_edgekit(code, "trust", *arguments)
    assert {path.name: path.read_bytes() for path in workstation.trust.glob("*")} == before


def test_a_policy_that_somebody_edited_is_not_signed_again(workstation: Workstation) -> None:
    """Else the root would sign what a thief has written into the folder."""
    run_edgekit(0, "trust", "init", "trust", "--root", "root")
    path = workstation.trust / policy.POLICY
    values = json.loads(path.read_text())
    values["signers"] = {"thief": {"key": policy_key(workstation, "bert"), "expires": None}}
    path.write_text(json.dumps(values))
    assert "does not verify" in run_edgekit(8, "trust", "add", "trust", "anna", "anna.pub", "--root", "root")


def test_help_of_the_group_names_its_commands() -> None:
    done = edgekit("trust", "--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("init", "add", "revoke", "rotate", "renew"))
