"""`edgerun live` as a process: what it prints, its page, and its children."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

PATIENCE_S = 120.0
COMMAND = (sys.executable, "-m", "edgekit.runner", "live")


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "EDGERUN_HOME": str(home), **more}


def run(home: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """The command to its end, without a measurement of interpreters."""
    return subprocess.run(
        [*COMMAND, *map(str, words), "--no-trial"],
        capture_output=True, text=True, env=environment(home, **more), timeout=PATIENCE_S, check=False,
    )  # fmt: skip


class Live:
    """A run that goes on until it is stopped. Its page, if any, has a free port."""

    def __init__(
        self, home: Path, *words: object, command: Sequence[str] = COMMAND, folder: Path | None = None, **more: str
    ) -> None:
        self.process = subprocess.Popen(
            [*command, *map(str, words), "--no-trial"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(home, **more),
            start_new_session=True, cwd=folder,
        )  # fmt: skip
        self.out: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=_collect, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def until(self, true: Callable[[], Any]) -> Any:
        """Wait until something is so, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := _quietly(true)):
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, (self.errors, self.out[-3:])
            time.sleep(0.02)
        return value

    @property
    def port(self) -> int:
        """Of the page."""
        line = self.until(lambda: next(each for each in self.errors if "page: http" in each))
        return int(re.findall(r"page: http://[^ ]*:(\d+)/", line)[0])

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> http.client.HTTPResponse:
        """An answer of the page, its body read into `.text`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        answer.text = answer.read().decode("latin-1")  # type: ignore[attr-defined]
        connection.close()
        return answer

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        state: dict[str, Any] = json.loads(self.ask("/state").text)  # type: ignore[attr-defined]
        return state

    def children(self) -> list[int]:
        """Processes that it has started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for tasks in path.parent.parent.glob("*/children") for each in tasks.read_text().split()]

    def stop(self, by: int = signal.SIGTERM) -> tuple[int, float]:
        """Its exit code, and the seconds it took. Then everything that it has printed was read."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(by)
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        seconds = time.monotonic() - started
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code, seconds


def _quietly(true: Callable[[], Any]) -> Any:
    with suppress(StopIteration, OSError, http.client.HTTPException):
        return true()
    return None


def _collect(stream: Any, lines: list[str]) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
