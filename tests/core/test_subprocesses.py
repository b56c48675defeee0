"""Functions in child processes: results, errors, how an end is explained, and that nothing of a child stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.core import subprocesses
from edgekit.core.errors import BudgetMissed, ConfigError, EdgekitError, ResourceError

SCRIPT = """
import os, signal, subprocess, sys, time

def does(code):
    print("INFO: routine")
    print("ValueError: the sensor was gone", flush=True)
    exec(code, globals())

def add(a, b):
    return {"sum": a + b}

def refuse(module, name):
    raise getattr(__import__(module, fromlist=[name]), name)("we refuse")

def pid():
    return os.getpid()

def crash():
    print("the last words", flush=True)
    os.abort()

def fill_the_disk():
    raise OSError(28, "No space left on device", "/somewhere")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_script_of_ours.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    return "a_script_of_ours"


@pytest.fixture
def function(module: str) -> str:
    return f"{module}:does"


@pytest.mark.parametrize(
    ("does", "cause"),
    [
        ("sys.exit(17)", "the process ended with exit code 17"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process crashed (SIGSEGV)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed (SIGKILL), as the system does"),
    ],
)
def test_a_process_that_ends_is_reported_with_its_last_output(
    function: str, tmp_path: Path, does: str, cause: str
) -> None:
    ended = subprocesses.run(function, [does], tmp_path / "log", 60)
    assert not ended.timed_out and ended.describe().startswith(cause)
    assert ended.describe().endswith("its last output was: ValueError: the sensor was gone")


def test_one_that_ends_well(function: str, tmp_path: Path) -> None:
    ended = subprocesses.run(function, ["pass"], tmp_path / "log", 60)
    assert (ended.code, ended.timed_out) == (0, False)


@pytest.mark.parametrize(
    ("environment", "policy", "spins"),
    [
        ({}, "PASSIVE", subprocesses.OPENMP_WAIT["GOMP_SPINCOUNT"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE", None),
        ({"GOMP_SPINCOUNT": "7"}, None, "7"),
    ],
    ids=["by default", "the user's policy", "the user's count"],
)
def test_waiting_openmp_threads_sleep_unless_the_user_has_decided(
    function: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    policy: str | None,
    spins: str | None,
) -> None:
    for name in subprocesses.OPENMP_WAIT:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    does = "print([os.environ.get(name) for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')])"
    ended = subprocesses.run(function, [does], tmp_path / "log", 60)
    assert ended.log.read_text().splitlines()[-1] == str([policy, spins])


def test_an_exception_is_reported_with_its_message(function: str, tmp_path: Path) -> None:
    ended = subprocesses.run(function, ["time.sleep(0.3); raise KeyError('ours')"], tmp_path / "log", 60)
    assert (ended.code, subprocesses.last_useful_line(ended.output)) == (1, "KeyError: 'ours'")


def test_every_line_is_heard_also_one_without_an_end(function: str, tmp_path: Path) -> None:
    heard: list[str] = []
    does = "print('1'); time.sleep(0.3); print('2\\n3', end='')"
    subprocesses.run(function, [does], tmp_path / "log", 60, on_line=heard.append)
    assert heard == ["INFO: routine", "ValueError: the sensor was gone", "1", "2", "3"]


def test_one_that_takes_too_long_is_ended_with_what_it_started(function: str, tmp_path: Path) -> None:
    sleeper, note = "subprocess.Popen(['sleep', '600'])", tmp_path / "pid"
    does = f"open({str(note)!r}, 'w').write(str({sleeper}.pid)); time.sleep(600)"
    looks: list[bool] = []
    ended = subprocesses.run(function, [does], tmp_path / "log", 3, should_stop=lambda: looks.append(note.is_file()))
    assert ended.timed_out and any(looks)
    assert not _runs(int(note.read_text()))


@pytest.mark.parametrize("goes", ["sys.exit(0)", "os._exit(7)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_what_it_started_goes_though_it_has_gone_itself(function: str, tmp_path: Path, goes: str) -> None:
    note = tmp_path / "pid"
    forked = f"pid = os.fork()\nif not pid: time.sleep(600)\nopen({str(note)!r}, 'w').write(str(pid))\n{goes}"
    ended = subprocesses.run(function, [forked], tmp_path / "log", 60)
    assert ended.code in (0, 7, -signal.SIGSEGV) and not ended.timed_out
    assert not _runs(int(note.read_text()))


def test_what_it_started_goes_when_the_parent_is_killed(function: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    forked = f"pid = os.fork()\nif not pid: time.sleep(600)\nopen({str(note)!r}, 'w').write(str(pid))\n"
    does = f"{forked}time.sleep(600)"
    imports = "import pathlib; from edgekit.core import subprocesses"
    _kill_when_noted(f"{imports}; subprocesses.run({function!r}, [{does!r}], pathlib.Path('log'), 600)", note, tmp_path)
    assert not _runs(int(note.read_text()))


def _kill_when_noted(parent: str, note: Path, tmp_path: Path) -> None:
    """Run `parent` until there is a note of its child, and kill it."""
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


def test_a_look_that_is_true_ends_it_and_no_time_ran_out(function: str, tmp_path: Path) -> None:
    pids: list[int] = []
    ended = subprocesses.run(
        function, ["time.sleep(600)"], tmp_path / "log", 60, on_start=pids.append, should_stop=lambda: True
    )
    assert ended.signal == "SIGTERM" and not ended.timed_out
    assert not _runs(pids[0])


def test_a_subprocess_receives_the_additional_environment(function: str, tmp_path: Path) -> None:
    does = "sys.exit(int(os.environ['GIVEN']))"
    assert subprocesses.run(function, [does], tmp_path / "log", 60, {"GIVEN": "5"}).code == 5


def test_one_that_reads_its_input_goes_with_a_parent_that_is_killed(function: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    does = f"open({str(note)!r}, 'w').write(str(os.getpid())); print(sys.stdin.readline()); time.sleep(600)"
    started = f"subprocesses.start({function!r}, [{does!r}], reads_input=True)"
    parent = f"import time; from edgekit.core import subprocesses; child = {started}; time.sleep(600)"
    _kill_when_noted(parent, note, tmp_path)
    assert not _runs(int(note.read_text()))


def test_a_call_gives_the_result(module: str, tmp_path: Path) -> None:
    assert subprocesses.call(f"{module}:add", {"a": 1, "b": 2}, tmp_path, 60) == {"sum": 3}
    with subprocesses.BackgroundCall(f"{module}:add", {"a": 3, "b": 4}, tmp_path) as under_way:
        while not under_way.has_ended:
            time.sleep(0.02)
        assert under_way.result() == {"sum": 7}


@pytest.mark.parametrize(
    ("of", "name", "kind", "exit_code"),
    [
        ("edgekit.core.errors", "ConfigError", ConfigError, 2),
        ("edgekit.core.errors", "BudgetMissed", BudgetMissed, 3),
        ("edgekit.runner.errors", "BackendError", EdgekitError, 5),
    ],
)
def test_a_call_raises_what_the_function_raises(
    of: str, name: str, kind: type[EdgekitError], exit_code: int, module: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match="^we refuse$") as raised:
        subprocesses.call(f"{module}:refuse", {"module": of, "name": name}, tmp_path, 60)
    assert type(raised.value) is kind and raised.value.exit_code == exit_code


def test_a_full_disk_is_an_error_of_the_machine(module: str, tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="^/somewhere: No space left on device; free some space, or allow more$"):
        subprocesses.call(f"{module}:fill_the_disk", {}, tmp_path, 60)


@pytest.mark.parametrize(
    ("code", "timeout_s", "words", "late"),
    [
        (
            "sys.exit(0)",
            60,
            "exit code 0 and without an answer; its last output was: ValueError: the sensor was gone",
            False,
        ),
        (
            "os._exit(0)",
            60,
            "exit code 0 and without an answer; its last output was: ValueError: the sensor was gone",
            False,
        ),
        ("raise KeyError('ours')", 60, "exit code 1; its last output was: KeyError: 'ours'", False),
        ("time.sleep(600)", 1, "killed", True),
    ],
)
def test_a_call_without_an_answer(
    code: str, timeout_s: float, words: str, late: bool, function: str, tmp_path: Path
) -> None:
    (tmp_path / "answer.json").write_text('{"result": "of another call"}')
    with pytest.raises(subprocesses.ChildDied, match=words) as raised:
        subprocesses.call(function, {"code": code}, tmp_path, timeout_s)
    assert raised.value.ended.timed_out == late


def test_a_server_answers_in_one_process_and_in_another_after_a_crash(module: str, tmp_path: Path) -> None:
    with subprocesses.CallServer(tmp_path / "server.log") as server:
        first, again = (server.call(f"{module}:pid", {}, tmp_path, 60) for _ in range(2))
        assert first == again != os.getpid()
        with pytest.raises(ConfigError, match="we refuse"):
            server.call(f"{module}:refuse", {"module": "edgekit.core.errors", "name": "ConfigError"}, tmp_path, 60)
        with pytest.raises(subprocesses.ChildDied, match="SIGABRT.*the last words"):
            server.call(f"{module}:crash", {}, tmp_path, 60)
        assert server.call(f"{module}:pid", {}, tmp_path, 60) != first


def test_a_server_ends_a_call_that_takes_too_long(module: str, tmp_path: Path) -> None:
    with subprocesses.CallServer(tmp_path / "server.log") as server:
        with pytest.raises(subprocesses.ChildDied) as died:
            server.call(f"{module}:does", {"code": "time.sleep(60)"}, tmp_path, 2)
        assert died.value.ended.timed_out


def test_notes_leave_out_a_line_that_was_torn(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text('{"begins": "fp32"}\n{"made": "fp32"}\n{"beg')
    assert subprocesses.read_journal(tmp_path / "journal") == [{"begins": "fp32"}, {"made": "fp32"}]
    assert subprocesses.read_journal(tmp_path / "nothing") == []


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
