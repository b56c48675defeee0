"""`edgerun verify --trust` and `edgerun trust`, as a device calls them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from edgekit.device import trust
from edgekit.device.trust import policy, policy_history
from edgekit.device.trust.adoption import adopt_policy
from edgekit.runner.cli import main
from edgekit.runner.errors import TrustError

from .desk import Desk, make_bundle


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """What `edgerun` printed; on a failure one line on standard error, and nothing else."""
    assert main([str(each) for each in arguments]) == code
    printed = capsys.readouterr()
    if code == 0:
        assert printed.err == ""
        return printed.out
    assert printed.out == "" and printed.err.startswith("edgerun: ") and printed.err.count("\n") == 1
    return printed.err


def test_verify_says_who_signed_what(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, 0, "verify", desk.bundle, "--trust", desk.trust)
    assert "signed by anna at " in out and "tiny epoch 1, counter 5, until " in out and "model.onnx" in out
    facts = json.loads(said(capsys, 0, "verify", desk.bundle, "--trust", desk.trust, "--json"))
    assert facts["trusted"]["signers"] == ["anna"] and facts["trusted"]["sha256"] == facts["sha256"]
    assert "trusted" not in json.loads(said(capsys, 0, "verify", desk.bundle, "--json"))
    assert not (desk.trust / policy_history.SEEN).exists(), "it only looks"


def test_verify_refuses_what_is_not_trusted(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(desk.bundle, "1.0.1")
    assert said(capsys, 0, "verify", desk.bundle)
    assert "the signed statement is about" in said(capsys, 8, "verify", desk.bundle, "--trust", desk.trust)
    desk.statement.unlink()
    assert "edgekit sign" in said(capsys, 8, "verify", desk.bundle, "--trust", desk.trust)
    assert "policy.json" in said(capsys, 8, "verify", desk.bundle, "--trust", desk.home / "none")
    assert "No such file" in said(capsys, 4, "verify", desk.home / "none.edge.zip", "--trust", desk.trust)


def test_verify_refuses_before_it_reads_a_bundle(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """So that nothing of what a stranger made is understood."""
    desk.bundle.write_bytes(b"no bundle at all")
    assert "the signed statement is about" in said(capsys, 8, "verify", desk.bundle, "--trust", desk.trust)


def test_without_ssh_keygen_a_device_says_so(desk: Desk) -> None:
    """As a process."""
    code = (
        "import sys; from edgekit.runner.cli import main; from edgekit.device.trust import ssh_keygen\n"
        "ssh_keygen.PROGRAMS = (); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "verify", str(desk.bundle), "--trust", str(desk.trust)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 8 and done.stdout == ""
    assert done.stderr.startswith("edgerun: ssh-keygen: not found as") and "openssh-client" in done.stderr


def test_a_device_takes_a_policy_over_and_then_only_newer_ones(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    device, old = desk.home / "device" / "trust", desk.home / "old"
    adopt_policy(desk.trust, old)
    out = said(capsys, 0, "trust", desk.trust, "--home", device.parent)
    assert "root    SHA256:" in out and "policy  version 2, epoch 1, until " in out and "anna; at least 1 must" in out
    assert device.stat().st_mode & 0o777 == 0o755 and device.parent.stat().st_mode & 0o777 == 0o700
    assert trust.check_bundle(desk.bundle, device, {}).signers == ("anna",)
    desk.rotate(anna="anna-2")
    assert "version 3, epoch 2" in said(capsys, 0, "trust", desk.trust, "--home", device.parent)
    assert "version 3, epoch 2" in said(capsys, 0, "trust", desk.trust, "--home", device.parent)
    before = {path.name: path.read_bytes() for path in device.iterdir()}
    assert "version 2, but this device has already seen version 3" in said(
        capsys, 8, "trust", old, "--home", device.parent
    )
    desk.put_policy("thief", version=9)
    assert "not by the root" in said(capsys, 8, "trust", desk.trust, "--home", device.parent)
    assert {path.name: path.read_bytes() for path in device.iterdir()} == before
    assert sorted(before) == [policy.POLICY, policy.SIGNATURE, policy.ROOT, policy_history.SEEN]


def test_another_root_is_taken_over_by_nobody(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """A foreign policy is whole in itself; the device keeps the root that it knows."""
    device, foreign = desk.home / "device" / "trust", desk.home / "foreign"
    adopt_policy(desk.trust, device)
    from edgekit.fleet.signing import policy_change

    policy_change.init(foreign, desk.key("thief"), 1, 365)
    assert "not by the root" in said(capsys, 8, "trust", foreign, "--home", device.parent)


def test_a_first_policy_that_is_not_whole_leaves_no_folder(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    device = desk.home / "device" / "trust"
    desk.put_policy("thief")
    assert "not by the root" in said(capsys, 8, "trust", desk.trust, "--home", device.parent)
    assert not device.exists() and not [path for path in desk.home.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("stopped_at", range(5))
def test_a_policy_that_was_half_replaced_is_the_old_or_the_new_one(
    stopped_at: int, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut before each rename and each removal."""
    device = desk.home / "device"
    adopt_policy(desk.trust, device)
    desk.add("bert")
    calls = 0

    def cut(name: str) -> None:
        real = getattr(policy.os, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += str(arguments[0]).startswith(str(device))
            if calls > stopped_at:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        monkeypatch.setattr(policy.os, name, call)

    for name in ("replace", "unlink"):
        cut(name)
    try:
        adopt_policy(desk.trust, device)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    monkeypatch.undo()
    assert interrupted == (stopped_at < 4)
    assert trust.check_bundle(desk.bundle, device, {}).signers == ("anna",)
    assert adopt_policy(desk.trust, device).version == 3
    assert set(policy.read_policy(device).signers) == {"anna", "bert"}
    adopt_policy(desk.trust, device)
    left = sorted(path.name for path in device.iterdir() if not path.name.startswith("."))
    assert left == [policy.POLICY, policy.SIGNATURE, policy.ROOT, policy_history.SEEN]


def test_a_bundle_is_loaded_while_the_policy_is_replaced(desk: Desk) -> None:
    """A service that restarts just then must not be refused."""
    device, versions = desk.home / "device", []
    adopt_policy(desk.trust, device)
    for number in range(6):
        versions.append(Path(shutil.copytree(desk.trust, desk.home / f"version-{number}")))
        desk.revoke(other=number + 1)
    ended = threading.Event()

    def replace() -> None:
        for folder in versions:
            adopt_policy(folder, device)
        ended.set()

    owner = threading.Thread(target=replace)
    owner.start()
    loads = 0
    while not ended.is_set() or not loads:
        assert trust.check_bundle(desk.bundle, device, None, remember=False).signers == ("anna",)
        loads += 1
    owner.join()
    assert policy.read_policy(device).version == policy.read_policy(versions[-1]).version


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "has format '2', but this edgekit reads 1"),
        ({"version": 0}, "version: got '0'"),
        ({"version": 2.5}, "version: got '2.5'"),
        ({"epoch": True}, "epoch: got 'True'"),
        ({"epoch": 2**53 + 1}, "epoch: got"),
        ({"threshold": 17}, "threshold: got 17; use at most 16"),
        ({"threshold": 0}, "threshold"),
        ({"expires": "2027-01-31"}, "expires: got '2027-01-31'"),
        ({"expires": "2027-01-31T12:00:00+00:00"}, "expires: got"),
        ({"expires": "2027-02-31T12:00:00Z"}, "expires: got"),
        ({"time": 5}, "time: got '5'"),
        ({"signers": []}, "signers: got"),
        ({"signers": {"an*a": {"key": "", "expires": None}}}, "signers: got"),
        ({"signers": {"a,b": {"key": "", "expires": None}}}, "signers: got"),
        ({"signers": {"anna": "key"}}, "signers.anna"),
        ({"signers": {"anna": {"key": "ssh-rsa AAAAB3NzaC1yc2E=", "expires": None}}}, "ssh-keygen -t ed25519"),
        ({"signers": {"anna": {"key": "ssh-ed25519 AAAA\nx ssh-ed25519 AAAA", "expires": None}}}, "one line"),
        ({"minimum": {"tiny": -1}}, "minimum.tiny"),
        ({"minimum": None}, "but must have ["),
        ({"more": 1}, "but must have ["),
    ],
)
def test_a_policy_that_the_root_signed_with_a_mistake_is_refused(
    changes: dict[str, Any], words: str, desk: Desk
) -> None:
    desk.put_policy(**changes)
    with pytest.raises(TrustError) as found:
        desk.check()
    assert words in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "holds a list, but must hold an object"),
        (b'{"a": 1, "a": 2}', "a key occurs twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (b'{"a":' * 20_000, "not JSON"),
        (b"{}", "but must have ["),
    ],
)
def test_a_signed_statement_that_is_none_is_refused(data: bytes, words: str, desk: Desk) -> None:
    """Whoever may sign can sign anything; a device still gives no traceback."""
    desk.put(data)
    with pytest.raises(TrustError) as found:
        desk.check()
    assert words in str(found.value)


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "https://slsa.dev/provenance/v0.2"},
        {"subject": []},
        {"subject": [{}, {}]},
        {"subject": [{"digest": {"sha1": "a"}}]},
        {"subject": None},
        {"predicate": []},
        {"predicate": {"edgekit_release": {"name": "tiny"}}},
        {"predicate": {"edgekit_release": []}},
    ],
)
def test_a_signed_statement_about_something_else_is_refused(change: dict[str, object], desk: Desk) -> None:
    desk.put(json.dumps({**json.loads(desk.statement.read_bytes()), **change}).encode())
    with pytest.raises(TrustError, match=r"intoto\.json"):
        desk.check()


@pytest.mark.parametrize("changes", [{"name": "a/b"}, {"name": ""}, {"name": 1}, {"counter": -1}, {"counter": "5"}])
def test_a_release_that_is_misspelt_is_refused(changes: dict[str, Any], desk: Desk) -> None:
    desk.forge(**changes)
    with pytest.raises(TrustError, match=next(iter(changes))):
        desk.check()


def test_files_without_end_are_not_read(desk: Desk) -> None:
    for path in (desk.statement, desk.signature, desk.trust / policy.POLICY, desk.trust / policy.ROOT):
        data = path.read_bytes()
        path.write_bytes(data + b" " * 2**20)
        with pytest.raises(TrustError, match="more than"):
            desk.check()
        path.write_bytes(data)
    assert Path(desk.bundle).is_file()
