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

from .workstation import Workstation, make_bundle


def run_edgerun(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """What `edgerun` printed; on a failure one line on standard error, and nothing else."""
    assert main([str(each) for each in arguments]) == code
    printed = capsys.readouterr()
    if code == 0:
        assert printed.err == ""
        return printed.out
    assert printed.out == "" and printed.err.startswith("edgerun: ") and printed.err.count("\n") == 1
    return printed.err


def test_verify_says_who_signed_what(workstation: Workstation, capsys: pytest.CaptureFixture[str]) -> None:
    out = run_edgerun(capsys, 0, "verify", workstation.bundle, "--trust", workstation.trust)
    assert "signed by anna at " in out and "tiny epoch 1, counter 5, until " in out and "model.onnx" in out
    facts = json.loads(run_edgerun(capsys, 0, "verify", workstation.bundle, "--trust", workstation.trust, "--json"))
    assert facts["trusted"]["signers"] == ["anna"] and facts["trusted"]["sha256"] == facts["sha256"]
    assert "trusted" not in json.loads(run_edgerun(capsys, 0, "verify", workstation.bundle, "--json"))
    assert not (workstation.trust / policy_history.SEEN).exists(), "it only looks"


def test_verify_refuses_what_is_not_trusted(workstation: Workstation, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(workstation.bundle, "1.0.1")
    assert run_edgerun(capsys, 0, "verify", workstation.bundle)
    assert "the signed statement is about" in run_edgerun(
        capsys, 8, "verify", workstation.bundle, "--trust", workstation.trust
    )
    workstation.statement.unlink()
    assert "edgekit sign" in run_edgerun(capsys, 8, "verify", workstation.bundle, "--trust", workstation.trust)
    assert "policy.json" in run_edgerun(capsys, 8, "verify", workstation.bundle, "--trust", workstation.home / "none")
    assert "No such file" in run_edgerun(
        capsys, 4, "verify", workstation.home / "none.edge.zip", "--trust", workstation.trust
    )


def test_verify_refuses_before_it_reads_a_bundle(workstation: Workstation, capsys: pytest.CaptureFixture[str]) -> None:
    """So that nothing of what a stranger made is understood."""
    workstation.bundle.write_bytes(b"no bundle at all")
    assert "the signed statement is about" in run_edgerun(
        capsys, 8, "verify", workstation.bundle, "--trust", workstation.trust
    )


def test_without_ssh_keygen_a_device_says_so(workstation: Workstation) -> None:
    """As a process."""
    code = (
        "import sys; from edgekit.runner.cli import main; from edgekit.device.trust import ssh_keygen\n"
        "ssh_keygen.PROGRAMS = (); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "verify", str(workstation.bundle), "--trust", str(workstation.trust)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 8 and done.stdout == ""
    assert done.stderr.startswith("edgerun: ssh-keygen: not found as") and "openssh-client" in done.stderr


def test_a_device_takes_a_policy_over_and_then_only_newer_ones(
    workstation: Workstation, capsys: pytest.CaptureFixture[str]
) -> None:
    device, old = workstation.home / "device" / "trust", workstation.home / "old"
    adopt_policy(workstation.trust, old)
    out = run_edgerun(capsys, 0, "trust", workstation.trust, "--home", device.parent)
    assert "root    SHA256:" in out and "policy  version 2, epoch 1, until " in out and "anna; at least 1 must" in out
    assert device.stat().st_mode & 0o777 == 0o755 and device.parent.stat().st_mode & 0o777 == 0o700
    assert trust.check_bundle(workstation.bundle, device, {}).signers == ("anna",)
    workstation.rotate(anna="anna-2")
    assert "version 3, epoch 2" in run_edgerun(capsys, 0, "trust", workstation.trust, "--home", device.parent)
    assert "version 3, epoch 2" in run_edgerun(capsys, 0, "trust", workstation.trust, "--home", device.parent)
    before = {path.name: path.read_bytes() for path in device.iterdir()}
    assert "version 2, but this device has already seen version 3" in run_edgerun(
        capsys, 8, "trust", old, "--home", device.parent
    )
    workstation.put_policy("thief", version=9)
    assert "not by the root" in run_edgerun(capsys, 8, "trust", workstation.trust, "--home", device.parent)
    assert {path.name: path.read_bytes() for path in device.iterdir()} == before
    assert sorted(before) == [policy.POLICY, policy.SIGNATURE, policy.ROOT, policy_history.SEEN]


def test_another_root_is_taken_over_by_nobody(workstation: Workstation, capsys: pytest.CaptureFixture[str]) -> None:
    """A foreign policy is whole in itself; the device keeps the root that it knows."""
    device, foreign = workstation.home / "device" / "trust", workstation.home / "foreign"
    adopt_policy(workstation.trust, device)
    from edgekit.fleet.signing import policy_change

    policy_change.init(foreign, workstation.key("thief"), 1, 365)
    assert "not by the root" in run_edgerun(capsys, 8, "trust", foreign, "--home", device.parent)


def test_a_first_policy_that_is_not_whole_leaves_no_folder(
    workstation: Workstation, capsys: pytest.CaptureFixture[str]
) -> None:
    device = workstation.home / "device" / "trust"
    workstation.put_policy("thief")
    assert "not by the root" in run_edgerun(capsys, 8, "trust", workstation.trust, "--home", device.parent)
    assert not device.exists() and not [path for path in workstation.home.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("stopped_at", range(5))
def test_a_policy_that_was_half_replaced_is_the_old_or_the_new_one(
    stopped_at: int, workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut before each rename and each removal."""
    device = workstation.home / "device"
    adopt_policy(workstation.trust, device)
    workstation.add("bert")
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
        adopt_policy(workstation.trust, device)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    monkeypatch.undo()
    assert interrupted == (stopped_at < 4)
    assert trust.check_bundle(workstation.bundle, device, {}).signers == ("anna",)
    assert adopt_policy(workstation.trust, device).version == 3
    assert set(policy.read_policy(device).signers) == {"anna", "bert"}
    adopt_policy(workstation.trust, device)
    left = sorted(path.name for path in device.iterdir() if not path.name.startswith("."))
    assert left == [policy.POLICY, policy.SIGNATURE, policy.ROOT, policy_history.SEEN]


def test_a_bundle_is_loaded_while_the_policy_is_replaced(workstation: Workstation) -> None:
    """A service that restarts just then must not be refused."""
    device, versions = workstation.home / "device", []
    adopt_policy(workstation.trust, device)
    for number in range(6):
        versions.append(Path(shutil.copytree(workstation.trust, workstation.home / f"version-{number}")))
        workstation.revoke(other=number + 1)
    ended = threading.Event()

    def replace() -> None:
        for folder in versions:
            adopt_policy(folder, device)
        ended.set()

    owner = threading.Thread(target=replace)
    owner.start()
    loads = 0
    while not ended.is_set() or not loads:
        assert trust.check_bundle(workstation.bundle, device, None, remember=False).signers == ("anna",)
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
    changes: dict[str, Any], words: str, workstation: Workstation
) -> None:
    workstation.put_policy(**changes)
    with pytest.raises(TrustError) as found:
        workstation.check()
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
def test_a_signed_statement_that_is_none_is_refused(data: bytes, words: str, workstation: Workstation) -> None:
    """Whoever may sign can sign anything; a device still gives no traceback."""
    workstation.put(data)
    with pytest.raises(TrustError) as found:
        workstation.check()
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
def test_a_signed_statement_about_something_else_is_refused(
    change: dict[str, object], workstation: Workstation
) -> None:
    workstation.put(json.dumps({**json.loads(workstation.statement.read_bytes()), **change}).encode())
    with pytest.raises(TrustError, match=r"intoto\.json"):
        workstation.check()


@pytest.mark.parametrize("changes", [{"name": "a/b"}, {"name": ""}, {"name": 1}, {"counter": -1}, {"counter": "5"}])
def test_a_release_that_is_misspelt_is_refused(changes: dict[str, Any], workstation: Workstation) -> None:
    workstation.forge(**changes)
    with pytest.raises(TrustError, match=next(iter(changes))):
        workstation.check()


def test_files_without_end_are_not_read(workstation: Workstation) -> None:
    for path in (
        workstation.statement,
        workstation.signature,
        workstation.trust / policy.POLICY,
        workstation.trust / policy.ROOT,
    ):
        data = path.read_bytes()
        path.write_bytes(data + b" " * 2**20)
        with pytest.raises(TrustError, match="more than"):
            workstation.check()
        path.write_bytes(data)
    assert Path(workstation.bundle).is_file()
