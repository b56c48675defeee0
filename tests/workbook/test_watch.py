"""`edgekit run` watched by a person: on a terminal, through a pipe, and what is left when it is stopped."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.core import progress
from edgekit.core import terminal_progress as watch
from edgekit.core.errors import ConfigError
from tests.conftest import ROOT, run_edgekit

pytestmark = pytest.mark.processes

SMALLEST = ROOT / "tests" / "configs" / "smallest.yaml"
PERIOD_S = 10.0
"""Longer than Python needs to start on a busy machine, before anything can be printed."""
LONG = ["--set", "profile.epochs=3000"]


def start(out: Path, *more: str, stderr: int, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "edgekit", "run", str(SMALLEST), "--out", str(out), *more]
    environment_variables = {**os.environ, watch.PERIOD_VARIABLE: str(PERIOD_S), **environment}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment_variables,
        stdout=stderr,
        stderr=stderr,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def read_until(source: int, done: Callable[[str], bool], limit_s: float = 300) -> tuple[str, list[float]]:
    """What was written until `done` or the end, and when each part of it came."""
    text, stamps, deadline = "", [time.monotonic()], time.monotonic() + limit_s
    while not done(text):
        assert time.monotonic() < deadline, text
        if not select.select([source], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(source, 65536)
        except OSError:  # a terminal whose last writer has gone
            part = b""
        stamps.append(time.monotonic())
        if not part:
            break
        text += part.decode(errors="replace")
    return text, stamps


def longest_gap(stamps: list[float]) -> float:
    return max(later - earlier for earlier, later in zip(stamps, stamps[1:], strict=False))


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_through_a_pipe_there_is_always_a_line_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """From its start over the look ahead into the first training, which Ctrl-C ends."""
    source, sink = os.pipe()
    process = start(tmp_path, *LONG, stderr=sink)
    os.close(sink)
    try:
        training = re.compile(r"^\[1/7\] profile \d+:\d\d · training the baseline · epoch \d+ of 3,000 .*left$", re.M)
        output, stamps = read_until(source, lambda text: bool(training.search(text)))
        assert training.search(output), output
        assert longest_gap(stamps) <= PERIOD_S
        assert "\x1b" not in output and "\r" not in output, "plain lines"
        assert "checking data and networks" in output or stamps[-1] - stamps[0] < PERIOD_S
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        end(process)
        os.close(source)
    assert not list((tmp_path / "smallest").glob(".*.tmp"))


def test_on_a_terminal_one_live_line_shows_epoch_best_and_time_left(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = start(tmp_path, *LONG, stderr=slave, TERM="xterm", COLUMNS="160")
    os.close(slave)
    try:
        live = re.compile(
            r"training the baseline · epoch \d+ of 3,000 · best \d+\.\d\d% · about \d+ (s|min|h)\b[^\r\n]* left"
        )
        output, _ = read_until(master, lambda text: len(live.findall(text)) >= 2)
        lines = [line for line in output.split("\n") if live.search(line)]
        assert len(lines) == 1, "every state takes the place of the one before"
        assert live.search(lines[0])
        process.send_signal(signal.SIGTERM)
        read_until(master, lambda text: False)
        assert process.wait(60) == 143
    finally:
        end(process)
        os.close(master)
    assert not list((tmp_path / "smallest").glob(".*.tmp"))


def test_what_a_kill_leaves_is_put_away_by_the_next_run(tmp_path: Path) -> None:
    source, sink = os.pipe()
    process = start(tmp_path, stderr=sink)
    os.close(sink)
    try:
        read_until(source, lambda text: "[1/7] profile" in text)
    finally:
        end(process)
        os.close(source)
    remaining = tmp_path / "smallest" / watch.FILE
    assert remaining.is_file()
    started = remaining.stat().st_mtime_ns
    broken = tmp_path / "edited.yaml"
    broken.write_text(
        SMALLEST.read_text().replace("size: 8", "size: 8\n  split_seed: 1").replace("ds_cnn:ds_cnn", "ds_cnn:none", 1)
    )
    done = run_edgekit("run", str(broken), "--out", str(tmp_path))
    assert done.returncode == 4, done.stderr
    assert not remaining.exists(), started


def test_stored_notebooks_and_the_run_hold_no_progress(tiny_run) -> None:  # type: ignore[no-untyped-def]
    for path in sorted((tiny_run.folder / "notebooks").glob("*.ipynb")):
        outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
        assert not re.search(r"epoch \d+ of|about \d+ \w+ left", json.dumps(outputs)), path.name
    assert not (tiny_run.folder / watch.FILE).exists()
    assert not re.search(r"epoch \d+ of|about \d+ \w+ left", tiny_run.stdout)


@pytest.mark.long
def test_a_whole_run_through_a_pipe_is_never_silent(tmp_path: Path) -> None:
    source, sink = os.pipe()
    process = start(tmp_path, stderr=sink)
    os.close(sink)
    try:
        output, stamps = read_until(source, lambda text: False, 900)
        assert process.wait(60) == 0, output
    finally:
        end(process)
        os.close(source)
    assert longest_gap(stamps) <= PERIOD_S
    for number, stage in enumerate(("profile", "distill", "prune", "quantize", "convert", "benchmark", "bundle"), 1):
        assert re.search(rf"^\[{number}/7\] {stage} · done in ", output, re.M), output
    assert sorted(path.name for path in (tmp_path / "smallest").glob(".*.tmp")) == []


class TestWatch:
    def test_says_what_the_kernel_said_once_and_shows_where_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(watch.PERIOD_VARIABLE, "0.5")
        monkeypatch.setattr(progress, "_messages", [])  # what earlier tests of this process said
        with watch.ProgressDisplay(tmp_path) as watched, watched.during("6/7 benchmark", lambda: "Checks"):
            time.sleep(1)
            with progress.step("timing", "round", 30):
                progress.announce("about 3 min")
                time.sleep(1)
        output = capfd.readouterr().err
        assert output.count("6/7 benchmark · about 3 min") == 1
        assert re.search(r"6/7 benchmark 0:0\d · Checks\n", output)
        assert re.search(r"6/7 benchmark 0:0\d · timing · round 1 of 30\n", output)
        assert re.search(r"6/7 benchmark · done in 0:0\d\n$", output)

    def test_an_error_ends_it_without_a_word_of_done(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(ValueError), watch.ProgressDisplay(tmp_path) as watched, watched.during("1/7 profile"):
            raise ValueError
        assert "done" not in capfd.readouterr().err
        assert list(tmp_path.iterdir()) == [] and progress.FILE not in os.environ

    @pytest.mark.parametrize("values", ["soon", "0", "-1", "nan", "1e9"])
    def test_a_period_that_is_none_is_explained(
        self, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(watch.PERIOD_VARIABLE, values)
        with pytest.raises(ConfigError, match=f"EDGEKIT_PROGRESS_S: got '{values}'; give seconds from 0.1 to 3600"):
            watch.ProgressDisplay(tmp_path)

    @pytest.mark.parametrize("text", ["a name \\ud800 of a file", "x" * 9000])
    def test_what_no_stream_can_write_does_not_silence_what_follows(
        self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(watch.PERIOD_VARIABLE, "0.1")
        text = text.replace("\\ud800", "\ud800")
        with watch.ProgressDisplay(tmp_path) as watched, watched.during("6/7 benchmark"):
            with progress.step(text):
                time.sleep(0.5)
            (tmp_path / watch.FILE).write_text('{"process": 1, "steps": [], "left_s": Infinity, "said": [["x", 1]]}')
            time.sleep(0.5)
            with progress.step("afterwards"):
                time.sleep(0.5)
        output = capfd.readouterr().err
        assert text[:6] in output and "afterwards" in output

    def test_the_stage_in_the_label_is_not_said_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(watch.PERIOD_VARIABLE, "0.1")
        with (
            watch.ProgressDisplay(tmp_path) as watched,
            watched.during("[6/7] benchmark", lambda: "Checks"),
            progress.step("benchmark"),
        ):
            time.sleep(0.5)
            with progress.step("timing"):
                time.sleep(0.5)
        output = capfd.readouterr().err
        assert re.search(r"benchmark 0:0\d · Checks\n", output) and re.search(r"benchmark 0:0\d · timing\n", output)

    def test_without_a_run_it_leaves_nothing(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(watch.PERIOD_VARIABLE, "0.1")
        with watch.show_progress("data"), progress.step("reading", "files", 2000):
            folder = Path(os.environ[progress.FILE]).parent
            time.sleep(0.5)
        output = capfd.readouterr().err
        assert re.search(r"^data 0:0\d · reading · 0 of 2,000 files\n", output, re.M)
        assert re.search(r"^data · done in 0:0\d\n\Z", output, re.M)
        assert not folder.exists() and progress.FILE not in os.environ


def test_a_terminal_that_has_gone_does_not_end_the_work(tmp_path: Path) -> None:
    code = """
import os, pty, sys
from pathlib import Path
from edgekit.core import terminal_progress as watch
master, slave = pty.openpty()
os.dup2(slave, 2)
os.environ["TERM"] = "xterm"
with watch.ProgressDisplay(Path(sys.argv[1])) as watched:
    os.close(master)
    with watched.during("1/7 profile"):
        watched.say("a line for good", print)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, check=False, text=True)
    assert (done.returncode, done.stdout) == (0, "a line for good\n")


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 2>&-"])
def test_a_closed_standard_error_ends_nothing(closed: str, tmp_path: Path) -> None:
    command = (
        f"{sys.executable} -m edgekit run {SMALLEST} --out {tmp_path} --set data.size=9 --set model.builder=none:x"
    )
    done = subprocess.run(f"{command} {closed}", shell=True, stdout=subprocess.PIPE, check=False, cwd=ROOT)
    assert done.returncode in (2, 4), done.stdout
    code = """
import os, sys
from pathlib import Path
from edgekit.runner.native_stderr import quiet_native
from edgekit.core import terminal_progress as watch
with watch.ProgressDisplay(Path(sys.argv[1])) as watched, watched.during("1/7 profile"), quiet_native(sys.argv[2]):
    os.write(2, b"native")
    print("worked")
Path(sys.argv[3]).open("x").close()
os.write(2, b"lost")
"""
    files = [str(tmp_path), str(tmp_path / "log"), str(tmp_path / "later")]
    words = " ".join([sys.executable, "-c", f"'{code.replace(chr(39), chr(34))}'", *files])
    done = subprocess.run(f"{words} {closed}", shell=True, stdout=subprocess.PIPE, check=False, cwd=ROOT, text=True)
    assert (done.returncode, done.stdout) == (0, "worked\n")
    assert [Path(file).read_text() for file in files[1:]] == ["native", ""]
