"""Commands for events: arguments without a shell, a time limit, one at a time, and no process left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.device.live.sinks import base, open_sink
from edgekit.runner.errors import InputError
from tests.device.live.sinks.broker import context, event, until
from tests.device.live.sinks.test_mqtt import started

WRITES = """
import json, pathlib, sys
with open(sys.argv[1], "a") as stream:
    picture = pathlib.Path(sys.argv[-1]).read_text() if len(sys.argv) > 3 and sys.argv[-1] else ""
    stream.write(json.dumps([sys.argv[2:], json.loads(sys.stdin.read()), picture]) + "\\n")
"""


def runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_arguments_and_input(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", WRITES, f"{tmp_path}/out", "{label} at {source}; $(id) {count}{zone}", "{picture}"]
    sink = open_sink({"to": "command:", "argv": argv}, context(tmp_path / "home"))
    sink.check()
    with started(sink):
        sink.send(event(1, count=3), b"jpeg")
        sink.send(event(2))
        until(lambda: sink.status().sent == 2)
    first, second = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert first[0][0] == "person at door; $(id) 3" and first[2] == "jpeg"
    assert first[1] == {**event(1, count=3).to_dict(), "device": "pi-7"}
    assert second[0] == ["person at door; $(id) ", ""] and second[2] == ""
    assert list((tmp_path / "home").iterdir()) == [], "the picture is removed"


def test_one_at_a_time_and_in_order(tmp_path: Path) -> None:
    code = "import sys, time; print(sys.argv[2], 'begins', file=open(sys.argv[1], 'a')); time.sleep(0.1); " + (
        "print(sys.argv[2], 'ends', file=open(sys.argv[1], 'a'))"
    )
    sink = open_sink(
        {"to": "command:", "argv": [sys.executable, "-c", code, f"{tmp_path}/out", "{frame}"]}, context(tmp_path)
    )
    with started(sink):
        for number in range(3):
            sink.send(event(number))
        assert sink.status().waiting == 3
        until(lambda: sink.status().sent == 3)
    expected = [f"{number} {what}" for number in range(3) for what in ("begins", "ends")]
    assert (tmp_path / "out").read_text().splitlines() == expected


def test_a_time_limit_ends_all_that_was_started(tmp_path: Path) -> None:
    argv = ["sh", "-c", 'sleep 60 & echo $! $$ > "$0"; wait', f"{tmp_path}/pids"]
    with started(open_sink({"to": "command:", "argv": argv, "limit_s": 0.5}, context(tmp_path))) as sink:
        sink.send(event(1))
        until(lambda: sink.status().failed == 1)
        assert sink.status().detail == "sink command sh: was killed after its time limit of 0.5 s"
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(map(runs, pids)))


def test_failures_are_counted(tmp_path: Path) -> None:
    with started(open_sink("command:sh -c 'exit 3'", context(tmp_path))) as sink:
        sink.send(event(1))
        until(lambda: sink.status().failed == 1)
        assert sink.status().detail == "sink command sh: ended with exit code 3"
    with started(open_sink("command:sh -c 'kill -9 $$'", context(tmp_path))) as sink:
        sink.send(event(1))
        until(lambda: sink.status().failed == 1)
        assert sink.status().detail.endswith("ended with exit code 137")


def test_a_command_ends_with_the_process(tmp_path: Path) -> None:
    code = """
import pathlib, sys, time
from edgekit.device.live.sinks import open_sink
from tests.device.live.sinks.broker import context, event
home = pathlib.Path(sys.argv[1])
argv = ["sh", "-c", 'echo $$ > "$0"; sleep 60', str(home / "pid")]
sink = open_sink({"to": "command:", "argv": argv, "limit_s": 60}, context(home))
sink.start()
sink.send(event(1))
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    file = tmp_path / "pid"
    until(lambda: file.exists() and file.read_text().strip())
    process.kill()
    process.wait()
    until(lambda: not runs(int(file.read_text())))


def test_closing_does_not_wait_for_a_command_that_hangs(tmp_path: Path) -> None:
    argv = ["sh", "-c", 'echo $$ > "$0"; sleep 60', f"{tmp_path}/pid"]
    sink = open_sink({"to": "command:", "argv": argv, "limit_s": 60}, context(tmp_path))
    sink.start()
    sink.send(event(1))
    file = tmp_path / "pid"
    until(lambda: file.exists() and file.read_text().strip())
    begun = time.monotonic()
    sink.close(0.3)
    assert time.monotonic() - begun < 15, "and not the minute of the command"
    until(lambda: not runs(int(file.read_text())))


def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_WAITING", 3)
    sink = open_sink("command:sleep 60", context(tmp_path))
    sink.start()
    for number in range(10):
        sink.send(event(number))
    assert sink.status().failed >= 6 and sink.status().waiting <= 4
    sink.close(0.1)


def test_commands_that_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for to, message in (
        ("command:no-such-program x", "no-such-program: there is no such program; install it"),
        (f"command:{tmp_path}/text", "text: this user may not run it"),
    ):
        with pytest.raises(InputError, match=message):
            open_sink(to, context(tmp_path)).check()
    for options, message in (
        ({"to": "command:echo {lable}"}, "unknown placeholder {lable}; known: id, rule"),
        ({"to": "command:"}, "argv: use a list of texts"),
        ({"to": "command:", "argv": "echo x"}, "argv: use a list of texts"),
        ({"to": "command:echo", "argv": ["echo"]}, "got a command in the address and in argv"),
        ({"to": "command:echo 'x"}, "No closing quotation; close the quotes"),
        ({"to": "command:echo", "limit_s": 0}, "limit_s: got 0; use a number of seconds above 0"),
        ({"to": "command:echo ${NO_SUCH_VARIABLE}"}, "the variable NO_SUCH_VARIABLE is not set"),
    ):
        with pytest.raises(InputError, match=message):
            open_sink(options, context(tmp_path))


def test_variables_are_expanded_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    sink = open_sink({"to": "command:", "argv": ["sh", "-c", "exit 1", "${TOKEN}"]}, context(tmp_path))
    with started(sink):
        sink.send(event(1))
        until(lambda: sink.status().failed == 1)
    assert "t0ken" not in f"{sink!r} {sink.name} {sink.status()}"
