"""A command for each event: a list of arguments with placeholders, never a shell. It gets the event as JSON on stdin.

    - to: command
      argv: [notify-send, "{label} at {source}"]

One command runs at a time. One that exceeds its time limit is killed with everything that it started, as it is when
this process ends.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgekit.device import processes
from edgekit.device.live import credentials
from edgekit.device.live.sinks.base import SinkContext, ThreadSink, check_folder, seconds_option, to_json
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError

SCHEMES = ("command",)
OPTIONS = ("argv", "limit_s")
LIMIT_S = 10.0
PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
EVENT_NAMES = ("id", "rule", "source", "kind", "time", "label", "score", "frame", "device")
DETAIL_NAMES = ("zone", "line", "direction", "count", "track", "box", "seconds")
NAMES = (*EVENT_NAMES, *DETAIL_NAMES, "picture")
"""Placeholders. Those that an event does not have are empty. `picture` is the path of a JPEG file."""


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Command:
    """Return the sink for `command:` with the option `argv`, or for `command:PROGRAM ARGUMENT…` with quotes."""
    text = address.partition(":")[2]
    try:
        argv = options["argv"] if "argv" in options else shlex.split(text)
    except ValueError as error:
        raise InputError(f"sink command: {error}; close the quotes, or use argv") from None
    if not isinstance(argv, (list, tuple)) or not argv or not all(isinstance(each, str) for each in argv):
        raise InputError('sink command: argv: use a list of texts, such as ["notify-send", "{label}"]')
    if "argv" in options and text:
        raise InputError("sink command: got a command in the address and in argv; use one of them")
    where = f"sink command {argv[0]}"
    for name in PLACEHOLDER.findall(" ".join(argv)):
        if name not in NAMES:
            raise InputError(f"{where}: unknown placeholder {{{name}}}; known: {', '.join(NAMES)}")
    return Command(
        [credentials.expand(each, where) for each in argv], context, seconds_option(options, "limit_s", LIMIT_S, where)
    )


class Command(ThreadSink):
    """Runs a command for each event."""

    def __init__(self, argv: Sequence[str], context: SinkContext, limit_s: float = LIMIT_S) -> None:
        super().__init__(f"command {os.path.basename(argv[0])}")
        self._argv, self._context, self._limit_s = list(argv), context, limit_s
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Raise InputError if there is no such program."""
        program = self._argv[0]
        if shutil.which(program) is None:
            why = "this user may not run it" if os.path.exists(program) else "there is no such program"
            raise InputError(f"sink {self.name}: {program}: {why}; install it, or give its path")
        check_folder(self._context.home, f"sink {self.name}")

    def _interrupt(self) -> None:
        process = self._process
        if process:
            processes.kill_process(process)

    def _deliver(self, event: Event, picture: bytes | None) -> None:
        file = self._context.home / f"command-{os.getpid()}.jpg"
        needs_picture = picture and any("{picture}" in each for each in self._argv)
        try:
            if needs_picture and picture:
                file.write_bytes(picture)
            code = self._run_once(self._arguments(event, file if needs_picture else None), event)
        finally:
            with suppress(FileNotFoundError):
                file.unlink()
        if code:
            raise RuntimeError(f"sink {self.name}: ended with exit code {code}")

    def _arguments(self, event: Event, picture: Path | None) -> list[str]:
        values = {**event.to_dict(), "device": self._context.device_id, "picture": picture or ""}
        return [PLACEHOLDER.sub(lambda match: str(values.get(match[1], "")), each) for each in self._argv]

    def _run_once(self, argv: Sequence[str], event: Event) -> int:
        self._process = process = processes.start_function(
            f"{__name__}:run", argv, reads_input=True, stdout=subprocess.DEVNULL
        )
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # the command need not read it
                process.stdin.write(to_json(event, self._context) + b"\n")
                process.stdin.close()
            has_ended = processes.has_ended(process, self._limit_s)
        finally:
            code = processes.end_process(process)
            self._process = None
        if not has_ended:
            raise RuntimeError(f"sink {self.name}: was killed after its time limit of {self._limit_s:g} s")
        return code


def run(*argv: str) -> int:
    """Run a command. Called in the child process, which kills the command when this process ends."""
    process = os.posix_spawnp(argv[0], argv, os.environ)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code
