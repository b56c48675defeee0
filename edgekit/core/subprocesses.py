"""Run functions of edgekit in child processes with a time limit, follow their output, and explain how they ended.

`call` passes arguments and results as JSON and raises what the function raised. `BackgroundCall` does the same in the
background, and `CallServer` makes several calls in one child. `run` is for functions that write their results to files,
for example to a journal for `read_journal`. Every child ends with this process, together with everything that it
started (see `edgekit.device.processes`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core import errors
from edgekit.core.errors import RESOURCE_ERRNOS, EdgekitError, ResourceError
from edgekit.device import processes
from edgekit.runner.errors import RunnerError
from edgekit.runner.files import write_atomically

OPENMP_WAIT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
"""OpenMP threads sleep while they wait for one another.

By default they spin for milliseconds. If another program is running, training then takes several times as long, because
a spinning thread occupies the core that another thread needs.
"""
QUIET_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",  # results must not depend on whether there is a GPU
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Environment variables for a child that opens a user's model on the CPU."""
JOB, ANSWER, LOG = "job.json", "answer.json", "log"
"""Files in the folder of a call."""
STOP_S = 5.0
"""Seconds that a child may take to end after it is asked to stop. After this time it is killed."""
ROUTINE_LINE = re.compile(
    r"^\s|^Traceback|^File |^(INFO|DEBUG|WARNING|I\d{4}|W\d{4})\b|Warning:|^\s*$|it/s\]|^\(\d+:\d+\) \["
)


@dataclass(frozen=True)
class ChildExit:
    """The end of a child: its exit code (negative for a signal), whether its time ran out, and its log file."""

    code: int
    timed_out: bool
    log: Path

    @property
    def was_killed(self) -> bool:
        """Whether the child was ended by SIGKILL, the signal that the system sends when memory runs out."""
        return self.code == processes.KILLED

    @property
    def signal(self) -> str:
        """The name of the signal that ended the child, or an empty text."""
        return processes.signal_name(-self.code) if self.code < 0 else ""

    def describe(self, name: str = "the process") -> str:
        """Describe how the child ended, with the last line of its output."""
        if self.was_killed:
            outcome = f"{name} was killed (SIGKILL), as the system does when memory runs out"
        elif self.signal:
            outcome = f"{name} crashed ({self.signal})"
        else:
            outcome = f"{name} ended with exit code {self.code}{'' if self.code else ' and without an answer'}"
        last_line = last_useful_line(self.output)
        return f"{outcome}; its last output was: {last_line}" if last_line else outcome

    @property
    def output(self) -> str:
        """Everything that the child printed."""
        return self.log.read_text(errors="replace", encoding="utf-8")


class ChildDied(Exception):
    """A child gave no answer: it crashed, was killed, raised an unexpected error or ran out of time."""

    def __init__(self, ended: ChildExit) -> None:
        super().__init__(ended.describe())
        self.ended = ended


def call(
    function: str,
    arguments: Mapping[str, Any],
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    *,
    should_stop: Callable[[], object] | None = None,
    on_line: Callable[[str], object] | None = None,
) -> Any:
    """Call `function` with `arguments` (JSON values) in a child process and return its result (a JSON value).

    Parameters
    ----------
    function
        `"package.module:name"`.
    arguments
        Keyword arguments of the function.
    folder
        An existing folder for the files of the call: the arguments, the answer and the log.
    timeout_s, environment, should_stop, on_line
        See `run`.

    Raises
    ------
    EdgekitError
        The error that the function raised, recreated by `errors.from_json`. It is a ResourceError if memory or disk
        space ran out.
    ChildDied
        There is no answer.
    """
    command = _prepare(function, arguments, folder)
    return _answer(
        run(*command, folder / LOG, timeout_s, environment, should_stop=should_stop, on_line=on_line), folder
    )


class BackgroundCall:
    """Like `call`, but in the background. Used as a context manager, it ends the child when the block ends."""

    def __init__(
        self,
        function: str,
        arguments: Mapping[str, Any],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        command = _prepare(function, arguments, folder)
        with open(folder / LOG, "wb") as log:
            self._process = start(*command, environment, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> BackgroundCall:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def has_ended(self) -> bool:
        """Whether the answer has arrived, or the child has ended without one."""
        return processes.has_ended(self._process)

    def result(self) -> Any:
        """Return or raise the same as `call`. Use it only after the call has ended."""
        return _answer(ChildExit(self.end(), False, self._folder / LOG), self._folder)

    def end(self) -> int:
        """End the child and all processes that it started, and return its exit code."""
        return processes.end_process(self._process)


class CallServer:
    """A child process that answers one call after another, so that large libraries are imported only once.

    It is a context manager. If a call has no answer, the child is ended, and the next call starts another one. What a
    child prints is written to the file `log`.
    """

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log, self._environment = log, environment
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CallServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: str, arguments: Mapping[str, Any], folder: Path, timeout_s: float) -> Any:
        """Return or raise the same as `call`."""
        _prepare(function, arguments, folder)
        if self._process is None:
            with open(self._log, "wb") as log:
                self._process = start(
                    f"{__name__}:{answer_calls.__name__}",
                    [],
                    self._environment,
                    reads_input=True,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        process, deadline = self._process, time.monotonic() + timeout_s
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the child has ended, which is noticed below
            process.stdin.write(json.dumps([function, str(folder)]).encode() + b"\n")
            process.stdin.flush()
        answer = folder / ANSWER
        while not (answer.is_file() or processes.has_ended(process, processes.POLL_S)):
            if time.monotonic() > deadline:
                raise ChildDied(ChildExit(self._end(), True, self._log))
        return _answer(ChildExit(0 if answer.is_file() else self._end(), False, self._log), folder)

    def _end(self) -> int:
        process, self._process = self._process, None
        return processes.end_process(process) if process else 0


def run(
    function: str,
    arguments: Sequence[str],
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    *,
    on_start: Callable[[int], object] | None = None,
    should_stop: Callable[[], object] | None = None,
    on_line: Callable[[str], object] | None = None,
) -> ChildExit:
    """Run `function` in a child process to its end, and return how it ended.

    Parameters
    ----------
    function, arguments
        `"package.module:name"`, and the strings that it is called with. Its return value is the exit code.
    log
        The file for everything that the child prints.
    timeout_s
        Seconds after which the child is killed.
    environment
        Variables in addition to this process's own.
    on_start
        Called with the child's process id.
    should_stop
        Called many times a second and once at the end. When it returns a true value, the child is asked to end, and is
        killed after `STOP_S`.
    on_line
        Called with each line that the child prints.
    """
    with open(log, "wb") as stream:
        process = start(function, arguments, environment, stdout=stream, stderr=subprocess.STDOUT)
    tail = FileTail(log)

    def listen(*, final: bool = False) -> None:
        if on_line is not None:
            for line in tail.new(final=final):
                on_line(line)

    try:
        if on_start is not None:
            on_start(process.pid)
        timed_out = not _wait(process, time.monotonic() + timeout_s, should_stop, listen)
    finally:
        code = processes.end_process(process)
    listen(final=True)
    return ChildExit(code, timed_out, log)


def start(
    function: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a function in a child process with the module search path of this one; see `processes.start_function`."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return processes.start_function(
        function, arguments, {**openmp_wait(), **(environment or {}), "PYTHONPATH": path}, **options
    )


def openmp_wait() -> dict[str, str]:
    """Return `OPENMP_WAIT` for the environment of a child that computes; empty if the user set one of its variables."""
    return {} if OPENMP_WAIT.keys() & os.environ.keys() else dict(OPENMP_WAIT)


class FileTail:
    """Reads the lines that another process appends to a file, as they appear."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new(self, *, final: bool = False) -> list[str]:
        """Return the lines since the last call. With `final`, also return a last line without a newline."""
        if not self._path.is_file():
            return []
        with open(self._path, "rb") as stream:
            stream.seek(self._read)
            content = stream.read()
        complete = content if final else content[: content.rfind(b"\n") + 1]
        self._read += len(complete)
        lines = [line.decode(errors="replace").rstrip() for line in complete.split(b"\n")]
        return lines if lines[-1] else lines[:-1]


def read_journal(journal: Path) -> list[dict[str, Any]]:
    """Return the JSON objects that a child wrote, one per line, or an empty list if there is no file."""
    entries = []
    for line in FileTail(journal).new(final=True):
        with contextlib.suppress(ValueError):  # the last line of a child that was killed while writing it
            entries.append(json.loads(line))
    return entries


def last_useful_line(text: str) -> str:
    """Return the last line of a log, without progress bars, indented frames of tracebacks and routine messages."""
    lines = [part for line in text.splitlines() for part in line.split("\r")]
    useful_lines = [line.strip() for line in lines if not ROUTINE_LINE.search(line)]
    return useful_lines[-1][:300] if useful_lines else ""


def answer_call(function: str, folder: str) -> None:
    """Call the function, and write its result or its error into the folder. This runs in the child of a call."""
    call_folder = Path(folder)
    arguments = json.loads((call_folder / JOB).read_text(encoding="utf-8"))
    try:
        content = {"result": processes.function_named(function)(**arguments)}
    except (EdgekitError, RunnerError) as error:
        content = errors.to_json(error)
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            raise
        prefix = f"{error.filename}: " if error.filename else ""
        content = errors.to_json(ResourceError(f"{prefix}{error.strerror}; free some space, or allow more"))
    write_atomically(call_folder / ANSWER, json.dumps(content).encode())


def answer_calls() -> None:
    """Answer the calls that standard input names, a JSON array [function, folder] on each line, until it ends."""
    for line in sys.stdin:
        answer_call(*json.loads(line))


def _prepare(function: str, arguments: Mapping[str, Any], folder: Path) -> tuple[str, list[str]]:
    """Write the arguments to the folder. Return the function for the child to run and that function's own arguments."""
    (folder / ANSWER).unlink(missing_ok=True)
    (folder / JOB).write_text(json.dumps(arguments), encoding="utf-8")
    return f"{__name__}:{answer_call.__name__}", [function, str(folder)]


def _answer(ended: ChildExit, folder: Path) -> Any:
    if ended.code or not (folder / ANSWER).is_file():
        raise ChildDied(ended)
    content = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    if "error" in content:
        raise errors.from_json(content)
    return content["result"]


def _wait(
    process: subprocess.Popen[bytes],
    deadline: float,
    should_stop: Callable[[], object] | None,
    report_lines: Callable[[], object],
) -> bool:
    """Wait until the child has ended or `should_stop` returns a true value. Returns False if the time ran out first."""
    while True:
        ended, timed_out = processes.has_ended(process), time.monotonic() > deadline
        report_lines()
        if should_stop is not None and should_stop() and not ended:
            process.terminate()  # a run that is asked to stop needs time to end its kernel and to release its locks
            processes.has_ended(process, STOP_S)
            return True
        if ended:
            return True
        if timed_out:
            return False
        processes.has_ended(process, processes.POLL_S)
