"""How ssh-keygen is called: always with a given time, without a writable disk; and old, slow or missing versions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.trust import policy, ssh_keygen, statement
from edgekit.device.trust.adoption import adopt_policy
from edgekit.runner.errors import ResourceError, TrustError
from tests import requirements

from .workstation import DAY_S, YEAR_S, Workstation

REAL = requirements.find_program("ssh-keygen") or ""
RECORDS = f"""#!/bin/sh
echo "$@" >> "$0.calls"
exec {REAL} "$@"
"""
OLD = f"""#!/bin/sh
# As OpenSSH 8.4: it reads -O with -Y and does not look at it; an option of a signer that it does not know is an error.
case "$*" in *"verify-time=?"*) echo "Couldn't parse signature: missing header" >&2; exit 255 ;; esac
for each; do [ "$last" = -f ] && allowed=$each; last=$each; done
grep -q valid-before "$allowed" && {{ echo "$allowed:1: bad options: unknown key option" >&2; exit 255; }}
exec {REAL} "$@"
"""

DOCTOR = """
import sys
from edgekit.runner.cli import main
from edgekit.device.trust import ssh_keygen
ssh_keygen.PROGRAMS = ({!r},)
sys.exit(main(["doctor", "--json"]))
"""

Put = Callable[[str], Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Makes a script the ssh-keygen of this process."""

    def put_in_place(text: str) -> Path:
        path = tmp_path / "bin" / "ssh-keygen"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        monkeypatch.setattr(ssh_keygen, "PROGRAMS", (str(path),))
        return path

    return put_in_place


def test_the_path_names_no_other_one(workstation: Workstation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that calls every signature good, first on the PATH of whoever loads, is not even called."""
    path = tmp_path / "ssh-keygen"
    path.write_text("#!/bin/sh\ntouch $0.calls\necho 'Good \"edgekit-policy\" signature for root with'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert workstation.check().signers == ("anna",)
    workstation.statement.write_bytes(workstation.statement.read_bytes() + b" ")
    with pytest.raises(TrustError, match="does not verify"):
        workstation.check()
    assert not (tmp_path / "ssh-keygen.calls").exists()


def test_ssh_keygen_always_gets_a_time_and_never_uses_the_clock(workstation: Workstation, put: Put) -> None:
    """At a load and an installation, for the policy and the statement, and where a policy is taken over."""
    path = put(RECORDS)
    floor_s = time.time() + 5 * DAY_S
    workstation.check(clock_floor=floor_s)
    workstation.check(floors=None)
    adopt_policy(workstation.trust, workstation.home / "device")
    calls = Path(f"{path}.calls").read_text().splitlines()
    assert len(calls) == 5 and all("-Y verify" in line and "-O verify-time=" in line for line in calls)
    assert ssh_keygen.format_time(floor_s) in calls[1]


def test_its_own_clock_does_not_count(workstation: Workstation) -> None:
    """A key that has ended by the clock of the system, and a check on a device at an earlier moment."""
    key = policy.read_policy(workstation.trust).signers["anna"].key
    data, armour = workstation.statement.read_bytes(), workstation.signature.read_bytes()
    ended_s = time.time() - DAY_S
    signature = ssh_keygen.Signature(data, armour, statement.NAMESPACE, "anna", key, ended_s, "here")
    ssh_keygen.verify([signature], (), ended_s - 60)
    for now_s in (None, ended_s + 60):
        with pytest.raises(TrustError, match="key has expired"):
            ssh_keygen.verify([signature], (), now_s)


@pytest.mark.parametrize("place", ["/nonexistent", "relative", ""])
def test_no_place_for_temporary_files_is_needed(
    place: str, workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = Workstation(Path(shutil.copytree(workstation.home, workstation.home.parent / "damaged")))
    damaged.statement.write_bytes(damaged.statement.read_bytes() + b" ")
    monkeypatch.setenv("TMPDIR", place)
    assert workstation.check().signers == ("anna",)
    with pytest.raises(TrustError, match="does not verify"):
        damaged.check()


def test_where_the_kernel_has_no_files_in_memory_a_private_folder_does(
    workstation: Workstation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.chdir(workstation.home)
    (workstation.home / "private").mkdir()
    workstation.add("bert")
    workstation.revoke("bert")  # a list of revoked keys is handed over too
    for place in (str(workstation.home / "private"), "private"):
        monkeypatch.setenv("TMPDIR", place)
        assert workstation.check().signers == ("anna",)
        assert list((workstation.home / "private").iterdir()) == []
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    with pytest.raises(ResourceError, match=r"^/nonexistent/edgekit-\w+: cannot be created \(No such file"):
        workstation.check()


def test_a_full_place_for_temporary_files_is_named(workstation: Workstation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    folder = workstation.home / "full"
    folder.mkdir()
    requirements.mount_here()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=64", "none", str(folder)], check=True)
    try:
        (folder / "filling").write_bytes(bytes(4096))
        monkeypatch.setenv("TMPDIR", str(folder))
        with pytest.raises(ResourceError, match=rf"^{folder}/edgekit-\w+: cannot be written \(No space left"):
            workstation.check()
        assert [path.name for path in folder.iterdir()] == ["filling"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_an_old_one_is_called_old(workstation: Workstation, put: Put) -> None:
    """The real one of 8.4 was not at hand: this answers as its source does. What has no end it verifies as well."""
    workstation.add("carla", time.time() + YEAR_S)
    workstation.sign("carla")
    path = put(OLD)
    with pytest.raises(
        TrustError, match=rf"unknown key option\); {path} is too old, .*install OpenSSH 8.8"
    ) as doctor_findings:
        workstation.check()
    assert doctor_findings.value.exit_code == 8
    workstation.forge("anna")
    assert workstation.check().signers == ("anna",)


def test_one_that_does_not_know_signatures_is_called_old(workstation: Workstation, put: Put) -> None:
    put("#!/bin/sh\necho 'unknown option -- Y' >&2\nexit 1\n")
    with pytest.raises(TrustError, match=r"\(unknown option -- Y\); .* is too old"):
        workstation.check()


def test_the_present_one_is_not_called_old(workstation: Workstation) -> None:
    workstation.statement.write_bytes(workstation.statement.read_bytes() + b" ")
    with pytest.raises(TrustError, match="copy the files again or sign again"):
        workstation.check()


def test_one_that_does_not_answer_is_no_refusal(
    workstation: Workstation, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files are good when the device is less busy, so nothing is blamed."""
    path = put("#!/bin/sh\necho $$ > $0.number\nexec sleep 600\n")
    monkeypatch.setattr(ssh_keygen, "LIMIT_S", 0.5)
    with pytest.raises(ResourceError, match="no answer within 0.5 s"):
        workstation.check()
    assert not Path(f"/proc/{Path(f'{path}.number').read_text().strip()}").exists()


def test_one_that_cannot_be_started_is_named(workstation: Workstation, put: Put) -> None:
    path = put("")
    path.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(ResourceError, match=rf"^{path}: cannot be started \(Exec format error\)"):
        workstation.check()


@pytest.mark.parametrize(
    ("text", "blocks", "words"),
    [(None, True, "not found as"), (OLD, False, "is too old"), (f'#!/bin/sh\nexec {REAL} "$@"\n', False, "")],
)
def test_the_doctor_looks_at_it_where_releases_have_to_be_signed(
    text: str | None, blocks: bool, words: str, workstation: Workstation, put: Put, tmp_path: Path
) -> None:
    home, folder = tmp_path / "home", tmp_path / "bin"
    folder.mkdir()
    if text is not None:
        put(text)
    command = [sys.executable, "-c", DOCTOR.format(str(folder / "ssh-keygen"))]
    environment = {"PYTHONPATH": ":".join(sys.path), "EDGERUN_HOME": str(home), "PATH": "/usr/bin:/bin"}

    def doctor_findings() -> list[dict[str, str]]:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return [each for each in json.loads(done.stdout)["findings"] if each["code"] == "ssh-keygen"]

    assert doctor_findings() == [], "a device without a policy does not need it"
    home.mkdir(0o700)
    adopt_policy(workstation.trust, home / "trust")
    findings = doctor_findings()
    assert bool(findings) == bool(words)
    for each in findings:
        assert each["severity"] == ("error" if blocks else "warning")
        assert words in each["cause"] and each["fix"].startswith("install")
