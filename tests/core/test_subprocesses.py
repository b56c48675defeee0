"""A process that works for another: how its end is told, what it noted, and that nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.core import subprocesses

SCRIPT = """
import os, signal, subprocess, sys, time
print("INFO: routine")
print("ValueError: the sensor was gone", flush=True)
exec(sys.argv[1])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_script_of_ours.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    return "a_script_of_ours"


@pytest.mark.parametrize(
    ("does", "cause"),
    [
        ("sys.exit(17)", "the process ended with exit code 17"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process crashed (SIGSEGV)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed (SIGKILL), as the system does"),
    ],
)
def test_an_end_is_told_with_the_last_words(module: str, tmp_path: Path, does: str, cause: str) -> None:
    ended = subprocesses.run(module, [does], tmp_path / "log", 60)
    assert not ended.late and ended.cause().startswith(cause)
    assert ended.cause().endswith("it last said: ValueError: the sensor was gone")


def test_one_that_ends_well(module: str, tmp_path: Path) -> None:
    ended = subprocesses.run(module, ["pass"], tmp_path / "log", 60)
    assert (ended.code, ended.late) == (0, False)


@pytest.mark.parametrize(
    ("given", "policy", "spins"),
    [
        ({}, "PASSIVE", subprocesses.OPENMP_WAIT["GOMP_SPINCOUNT"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE", None),
        ({"GOMP_SPINCOUNT": "7"}, None, "7"),
    ],
    ids=["by default", "the user's policy", "the user's count"],
)
def test_waiting_openmp_threads_sleep_unless_the_user_has_decided(
    module: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    policy: str | None,
    spins: str | None,
) -> None:
    for name in subprocesses.OPENMP_WAIT:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    does = "print([os.environ.get(name) for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')])"
    ended = subprocesses.run(module, [does], tmp_path / "log", 60)
    assert ended.log.read_text().splitlines()[-1] == str([policy, spins])


def test_one_that_watches_its_parent_says_itself_what_it_raised(module: str, tmp_path: Path) -> None:
    watches = "from edgekit.core.subprocesses import leave_with_parent; leave_with_parent()"
    does = f"{watches}; time.sleep(0.3); raise KeyError('ours')"
    ended = subprocesses.run(module, [does], tmp_path / "log", 60)
    assert (ended.code, subprocesses.last_useful_line(ended.log.read_text())) == (1, "KeyError: 'ours'")


def test_one_that_takes_too_long_is_ended_with_what_it_started(module: str, tmp_path: Path) -> None:
    sleeper, note = "subprocess.Popen(['sleep', '600'])", tmp_path / "pid"
    does = f"open({str(note)!r}, 'w').write(str({sleeper}.pid)); time.sleep(600)"
    looks: list[bool] = []
    ended = subprocesses.run(module, [does], tmp_path / "log", 3, look=lambda: looks.append(note.is_file()))
    assert ended.late and any(looks)
    assert not _runs(int(note.read_text()))


@pytest.mark.parametrize("goes", ["sys.exit(0)", "os._exit(7)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_what_it_started_goes_though_it_has_gone_itself(module: str, tmp_path: Path, goes: str) -> None:
    note = tmp_path / "pid"
    forked = f"pid = os.fork()\nif not pid: time.sleep(600)\nopen({str(note)!r}, 'w').write(str(pid))\n{goes}"
    ended = subprocesses.run(module, [forked], tmp_path / "log", 60)
    assert ended.code in (0, 7, -signal.SIGSEGV) and not ended.late
    assert not _runs(int(note.read_text()))


def test_what_it_started_goes_when_the_parent_is_killed(module: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    forked = f"pid = os.fork()\nif not pid: time.sleep(600)\nopen({str(note)!r}, 'w').write(str(pid))\n"
    does = f"from edgekit.core.subprocesses import leave_with_parent; leave_with_parent()\n{forked}time.sleep(600)"
    imports = "import pathlib; from edgekit.core import subprocesses"
    parent = f"{imports}; subprocesses.run({module!r}, [{does!r}], pathlib.Path('log'), 600)"
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    try:
        deadline = time.monotonic() + 60
        while not (note.is_file() and note.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert not _runs(int(note.read_text()))


def test_a_look_that_is_true_ends_it_and_no_time_ran_out(module: str, tmp_path: Path) -> None:
    pids: list[int] = []
    ended = subprocesses.run(module, ["time.sleep(600)"], tmp_path / "log", 60, started=pids.append, look=lambda: True)
    assert ended.code != 0 and not ended.late
    assert not _runs(pids[0])


def test_it_is_told_what_its_environment_adds(module: str, tmp_path: Path) -> None:
    does = "sys.exit(int(os.environ['GIVEN']))"
    assert subprocesses.run(module, [does], tmp_path / "log", 60, {"GIVEN": "5"}).code == 5


def test_notes_leave_out_a_line_that_was_torn(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text('{"begins": "fp32"}\n{"made": "fp32"}\n{"beg')
    assert subprocesses.notes(tmp_path / "journal") == [{"begins": "fp32"}, {"made": "fp32"}]
    assert subprocesses.notes(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("Loading\nTraceback (most recent call last):\n  File x\n    y()\nValueError: no such thing\n\n", "ValueError"),
        ("RuntimeError: bad graph\nINFO: routine\nRunning:  10%|█ | 1/10 [00:00<00:01, 5.1it/s]\n", "RuntimeError"),
        ("", ""),
    ],
)
def test_the_last_useful_line(log: str, line: str) -> None:
    assert subprocesses.last_useful_line(log).startswith(line)
    assert bool(subprocesses.last_useful_line(log)) == bool(line)


def _runs(pid: int) -> bool:
    """Whether a process is there that is no zombie."""
    for _ in range(20):
        try:
            os.kill(pid, 0)
            if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return False
        except OSError:
            return False
        time.sleep(0.1)
    return True
