"""Signed mode and releases where the user who runs a command may not write, or nobody may: nothing is let in for that.

Real users by `setpriv`, real mounts in a name space of the command's own, the real /var/lib/edge and /etc/edge/trust.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.device.releases import device, machine
from tests.device.releases.machine import NAMELESS, NOBODY, Machine
from tests.device.trust.workstation import Workstation

UNSIGNED, SIGNED = "/mnt/unsigned.edge.zip", "/mnt/workstation/1.0.0.edge.zip"
PREDICT = ("predict", "--no-trial")
SAMPLE = "/mnt/x.npy"
LOAD = "from edgekit.runner import load; print(load('current', trial=False).manifest.version)"


@pytest.fixture(scope="module")
def signed_machine(tmp_path_factory: pytest.TempPathFactory, signer: Workstation) -> Machine:
    """Root has taken over a policy in /var/lib/edge, and confirmed release 1."""
    signed_machine = machine.make(tmp_path_factory.mktemp("machine") / "disk")
    shutil.copytree(signer.home, signed_machine.folder / "workstation")
    (signed_machine.folder / "workstation").chmod(0o755)
    device.write(signed_machine.folder / "unsigned.edge.zip", version="9.9.9")
    np.save(signed_machine.folder / "x.npy", np.zeros((8, 8, 1), np.uint8))
    for words in (("trust", "/mnt/workstation/trust"), ("install", SIGNED), ("confirm",)):
        signed_machine.do(*words, "--home", "/var/lib/edge")
    return signed_machine


@pytest.fixture
def signed(signed_machine: Machine, tmp_path: Path) -> Machine:
    """Changed freely by a test."""
    shutil.copytree(signed_machine.folder, tmp_path / "disk", symlinks=True, ignore=shutil.ignore_patterns("held-*"))
    return Machine(tmp_path / "disk")


def homes(machine: Machine) -> Iterator[dict[str, str]]:
    """Environments that name another home."""
    elsewhere = machine.folder / "elsewhere"
    (elsewhere / ".edge").mkdir(parents=True)
    os.chown(elsewhere, NOBODY, NOBODY)
    os.chown(elsewhere / ".edge", NOBODY, NOBODY)
    yield {}
    yield {"EDGERUN_HOME": "/mnt/elsewhere/.edge"}
    yield {"HOME": "/mnt/elsewhere"}


@pytest.mark.parametrize("mode", [0o700, 0o755], ids=oct)
def test_another_user_runs_nothing_unsigned(mode: int, signed: Machine) -> None:
    """Whether or not that user may look at the policy, and whichever home the environment names."""
    signed.home.chmod(mode)
    for environment in homes(signed):
        message = signed.refused(*PREDICT, UNSIGNED, SAMPLE, user=NOBODY, **environment)
        assert ("cannot be examined" if mode == 0o700 else "make it with `edgekit sign`") in message


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o755], ids=oct)
def test_nothing_unsigned_runs_where_the_policy_cannot_be_read(mode: int, signed: Machine) -> None:
    (signed.home / "trust").chmod(mode)
    (signed.home / "trust" / "policy.json").chmod(0o600)
    assert "Permission denied" in signed.refused(*PREDICT, UNSIGNED, SAMPLE, user=NOBODY)


@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_disk_that_takes_nothing_lets_nothing_in(user: int, signed: Machine) -> None:
    assert "make it with" in signed.refused(*PREDICT, UNSIGNED, SAMPLE, user=user, read_only=True)
    assert "x.npy: " in signed.do(*PREDICT, SIGNED, SAMPLE, user=user, read_only=True)


def test_whoever_may_read_runs_what_is_signed_and_writes_nothing(signed: Machine) -> None:
    path = signed.home / "trust" / "seen.json"
    before = path.read_bytes()
    assert "x.npy: " in signed.do(*PREDICT, SIGNED, SAMPLE, user=NOBODY)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("user", "read_only"), [(NOBODY, False), (NOBODY, True), (0, True)])
def test_releases_are_read_by_everybody_and_from_such_a_disk(user: int, read_only: bool, signed: Machine) -> None:
    how = {"user": user, "read_only": read_only}
    found = json.loads(signed.do("status", "--json", **how))
    assert (found["home"], found["current"], found["signed"]) == ("/var/lib/edge", 1, True)
    assert signed.do("boot", **how) == "/var/lib/edge/releases/1/bundle.edge.zip\n"
    assert signed.do("-c", LOAD, command=(sys.executable,), **how) == "1.0.0\n"
    assert not list(signed.home.glob(".*.tmp"))


def test_only_the_owner_changes_them(signed: Machine) -> None:
    for words in (("confirm",), ("rollback",), ("gc",), ("install", SIGNED), ("trust", "/mnt/workstation/trust")):
        assert "belongs to user 0, but this is user 65534" in signed.refused(*words, user=NOBODY)


def test_a_release_of_another_user_is_on_trial_for_its_owner_alone(signed: Machine) -> None:
    signed.do("install", "/mnt/workstation/2.0.0.edge.zip")
    assert json.loads(signed.do("status", "--json", user=NOBODY))["tries"] == 3
    assert signed.do("boot", user=NOBODY).endswith("releases/1/bundle.edge.zip\n")
    assert json.loads(signed.do("status", "--json"))["tries"] == 3


def test_the_owner_whom_root_has_given_var_lib_edge_is_believed_by_all(signed: Machine) -> None:
    """As systemd's StateDirectory= gives it to a service's user."""
    for path in (signed.home, *signed.home.rglob("*")):
        os.chown(path, 4, 4, follow_symlinks=False)
    for user in (0, NOBODY):
        assert "make it with" in signed.refused(*PREDICT, UNSIGNED, SAMPLE, user=user)
        assert "x.npy: " in signed.do(*PREDICT, SIGNED, SAMPLE, user=user)
        assert "release 1" in signed.do("status", user=user)
    os.chown(signed.home / "trust" / "root.pub", 5, 5)
    assert "root.pub: other users can write it (user 5" in signed.refused(*PREDICT, SIGNED, SAMPLE, user=NOBODY)


def test_no_older_release_is_let_in_by_another_home(signed: Machine) -> None:
    """The versions that count are those of the home with the policy."""
    signed.do("install", "/mnt/workstation/2.0.0.edge.zip")
    signed.do("confirm")
    for environment in homes(signed):
        message = signed.refused(*PREDICT, SIGNED, SAMPLE, user=NOBODY, **environment)
        assert "counter 10 is older than epoch 1, counter 20" in message


def test_a_line_of_roots_says_that_the_device_is_signed(signed: Machine) -> None:
    """Whatever has become of the policy, and whatever the environment says."""
    signed.state("/var/lib/edge\n")
    assert "x.npy: " in signed.do(*PREDICT, SIGNED, SAMPLE, user=NOBODY)
    shutil.rmtree(signed.home / "trust")
    for environment in homes(signed):
        message = signed.refused(*PREDICT, UNSIGNED, SAMPLE, user=NOBODY, **environment)
        assert "/var/lib/edge/trust: cannot be read" in message
    shutil.rmtree(signed.home)
    assert "/var/lib/edge: cannot be read (No such file" in signed.refused(*PREDICT, UNSIGNED, SAMPLE)


def test_that_line_is_roots_alone_and_says_where(signed: Machine) -> None:
    path = signed.state("/var/lib/edge\n")
    path.chmod(0o666)
    assert "must be a file of root" in signed.refused(*PREDICT, SIGNED, SAMPLE)
    path.chmod(0o644)
    os.chown(path, NOBODY, NOBODY)
    assert "belongs to user 65534" in signed.refused(*PREDICT, SIGNED, SAMPLE)
    for text in ("", "edge\n", "/var/lib/edge/\n", "/var/lib/edge\n/elsewhere\n"):
        signed.state(text)
        os.chown(path, 0, 0)
        assert "write one line into it, such as /var/lib/edge" in signed.refused(*PREDICT, SIGNED, SAMPLE)
    path.unlink()
    path.symlink_to("/mnt/nowhere")
    assert "/etc/edge/trust: cannot be examined" in signed.refused(*PREDICT, SIGNED, SAMPLE)
    path.unlink()
    path.parent.chmod(0o700)
    assert "/etc/edge/trust: cannot be examined" in signed.refused(*PREDICT, SIGNED, SAMPLE, user=NOBODY)


@pytest.mark.parametrize("name", ["root.pub", "policy.json", "policy.json.sig", "seen.json"])
def test_a_file_of_the_policy_that_others_can_write_is_not_trusted(name: str, signed: Machine) -> None:
    (signed.home / "trust" / name).chmod(0o666)
    assert f"{name}: other users can write it" in signed.refused(*PREDICT, SIGNED, SAMPLE)


@pytest.mark.parametrize("name", ["floor.json", "releases/1", "releases/1/install.json", "releases/1/bundle.edge.zip"])
def test_a_record_or_a_release_that_others_can_write_is_not_trusted(name: str, signed: Machine) -> None:
    """As an earlier edgerun wrote them under a umask of 0, in a folder that nobody else could enter."""
    (signed.home / name).chmod(0o777)
    for command in ((*PREDICT, SIGNED, SAMPLE), ("status",), ("boot",)):
        assert f"/var/lib/edge/{name}: other users can write there" in signed.refused(*command)


@pytest.mark.parametrize("name", ["releases", "store", "releases/1", "floor.json"])
def test_what_this_user_cannot_read_of_a_home_is_no_leave(name: str, signed: Machine) -> None:
    signed.do("install", "/mnt/workstation/2.0.0.edge.zip")
    signed.do("confirm")
    (signed.home / name).chmod(0o600)
    done = signed.run(*PREDICT, SIGNED, SAMPLE, user=NOBODY)
    assert done.returncode == 8 and "Traceback" not in done.stderr, done.stderr


def test_nothing_is_written_that_others_can_write(tmp_path: Path, signer: Workstation) -> None:
    """Whatever the umask."""
    signed_machine = machine.make(tmp_path / "disk")
    shutil.copytree(signer.home, signed_machine.folder / "workstation")
    open_to_all = ("sh", "-c", 'umask 0; exec "$@"', "sh", *machine.COMMAND)
    for words in (("trust", "/mnt/workstation/trust"), ("install", SIGNED), ("confirm",)):
        signed_machine.do(*words, "--home", "/var/lib/edge", command=open_to_all)
    assert signed_machine.home.stat().st_mode & 0o777 == 0o755
    for path in signed_machine.home.rglob("*"):
        assert path.is_symlink() or not path.stat().st_mode & 0o022, path


@pytest.mark.parametrize(("user", "read_only"), [(0, True), (NOBODY, True), (NOBODY, False)])
def test_a_watch_that_cannot_write_in_its_home_ends_in_one_line(user: int, read_only: bool, signed: Machine) -> None:
    """It records each try of a release, and so can start none."""
    for lock_files_exist in (False, True):  # the files of its locks
        for name in (".watch", ".program", ".lock") if lock_files_exist else ():
            (signed.home / name).touch(0o600)
        message = signed.refused("watch", "--", "true", user=user, read_only=read_only, code=7)
        assert "/var/lib/edge/.watch" in message and (
            "Read-only file system" in message or "Permission denied" in message
        )


def test_a_user_without_a_name_gets_the_message_of_ssh_keygen(signed: Machine) -> None:
    message = signed.refused(*PREDICT, SIGNED, SAMPLE, user=NAMELESS)
    assert "No user exists for uid 54321" in message and "run as a user that is" in message
    done = signed.run("doctor", "--json", user=NAMELESS)
    assert "user 54321 is not found in /etc/passwd" in done.stdout


def test_a_device_that_is_not_signed_runs_anything_for_anybody(tmp_path: Path, signed_machine: Machine) -> None:
    plain = machine.make(tmp_path / "disk")
    for name in ("unsigned.edge.zip", "x.npy"):
        shutil.copy(signed_machine.folder / name, plain.folder / name)
    for user in (0, NOBODY, NAMELESS):
        assert "x.npy: " in plain.do(*PREDICT, UNSIGNED, SAMPLE, user=user)
