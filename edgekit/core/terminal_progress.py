"""Show the progress of `edgekit run`: a live line on a terminal, otherwise a new line at least every 30 seconds.

Progress goes to stderr. Lines that are part of the result go to stdout.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from edgekit.core import progress
from edgekit.core.errors import ConfigError
from edgekit.core.progress_state import ProgressState, elapsed
from edgekit.runner.native_stderr import duplicate_stderr

FILE = ".progress.tmp"
"""The file with the progress, in the run's folder while the run works. If the run is killed, the next one removes it
with the other `.tmp` files.
"""
PERIOD_VARIABLE = "EDGEKIT_PROGRESS_S"
"""Environment variable with the longest time between two lines, in seconds, where there is no terminal."""
PERIOD_S = 30.0
EARLY_SHARE = 0.8
"""A line is printed after this share of the period, because the printing thread may have to wait for the processor."""
REFRESH_S = 0.5


class ProgressDisplay:
    """Reads what the kernel publishes and shows it, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._period_s = period_s()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._label, self._place, self._began = "", _no_text, time.monotonic()
        self._state: ProgressState | None = None
        self._said: tuple[int, int] = (0, 0)
        self._spoken = -math.inf  # so that the first line appears at once
        self._has_open_line = False
        self._live: Any = None

    def __enter__(self) -> ProgressDisplay:
        # A copy of the descriptor is needed because executing a notebook redirects stderr. Names of files may hold
        # bytes that are not UTF-8.
        self._stream: TextIO = os.fdopen(duplicate_stderr(), "w", encoding="utf-8", errors="backslashreplace")
        self._terminal = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        with suppress(OSError):  # a full disk, so less is shown
            self._file.write_bytes(b"")
        self._before = os.environ.get(progress.FILE)
        os.environ[progress.FILE] = str(self._file.resolve())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._before is None:
            os.environ.pop(progress.FILE, None)
        else:
            os.environ[progress.FILE] = self._before
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        with suppress(OSError):  # the reader has closed the pipe
            self._stream.close()

    def say(self, line: str, say: Callable[[str], None]) -> None:
        """Call `say` with a line that is part of the result, and postpone the next progress line."""
        with self._lock:
            live = self._live is not None
            self._end_live("")
            say(line)
            sys.stdout.flush()
            if live:
                self._begin_live()
            self._spoken = time.monotonic()

    @contextmanager
    def during(self, label: str, place: Callable[[], str] | None = None, *, quietly: bool = False) -> Iterator[None]:
        """Show `label` and the published progress during the block, or the text of `place` if nothing is published.

        At the end of the block, unless it raised an error, a line says how long it took. With `quietly` this line is
        printed only after progress lines, because without it they would look as if the work were unfinished.
        """
        with self._lock:
            self._label, self._place, self._began = label, place or _no_text, time.monotonic()
            self._state, self._said, self._has_open_line = None, (0, 0), False
            with suppress(OSError):
                self._file.write_bytes(b"")
        ended = ""
        try:
            with self._lock:
                self._begin_live()
            yield
            ended = "" if quietly and not self._has_open_line else f"{label} · done in {self._taken()}"
        finally:
            with self._lock:
                self._look()
                self._label = ""
                if self._live is None and ended:
                    self._write(ended)
                self._end_live(ended)

    def _go_on(self) -> None:
        while not self._stop.wait(min(REFRESH_S, self._period_s / 10)):
            with self._lock, suppress(Exception):  # a failing line must not prevent the lines after it
                self._look()
                if self._live is not None:
                    self._live.update(self._text(self._line(self._live.console.width)), refresh=True)
                elif not self._terminal and time.monotonic() - self._spoken >= EARLY_SHARE * self._period_s:
                    self._write(self._line())
                    self._has_open_line = bool(self._label)

    def _look(self) -> None:
        """Read the state that the kernel published, and print the sentences that it announced."""
        state = progress.read_state(self._file)
        if state is None:
            return
        self._state = state
        for number, text in state.said:
            if (state.process, number) > self._said or state.process != self._said[0]:
                self._said = (state.process, number)
                self._write(f"{self._label} · {text}")

    def _line(self, width: int | None = None) -> str:
        """The progress line. It is shortened to `width`, if given, so that the parts that change most stay visible."""
        if not self._label:
            return "edgekit run · at work"
        label = f"{self._label} {self._taken()}"
        max_length = None if width is None else width - len(f"{label} · ")
        return " · ".join(filter(None, [label, self._published(max_length) or self._place()]))

    def _published(self, max_length: int | None) -> str:
        """The state as text, without an outermost step that only repeats the stage named in the label."""
        state = self._state
        if state is None:
            return ""
        outermost = state.steps[0] if state.steps else None
        if outermost is not None and not outermost.unit and self._label.endswith(f" {outermost.name}"):
            state = replace(state, steps=state.steps[1:])
        return str(state) if max_length is None else state.fitted(max_length)

    def _taken(self) -> str:
        return elapsed(time.monotonic() - self._began)

    def _write(self, line: str) -> None:
        with suppress(Exception):  # for example a closed pipe, which is noticed when the verdict is printed
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=self._stream, flush=True)
        self._spoken = time.monotonic()

    def _begin_live(self) -> None:
        if not self._terminal:
            return
        from rich.console import Console
        from rich.live import Live

        live = Live(
            self._text(self._label),
            console=Console(file=self._stream, force_terminal=True),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with suppress(OSError):  # the terminal is gone
            live.start()
            live.console.show_cursor(True)  # otherwise a killed run would leave the terminal without a cursor
            self._live = live

    def _end_live(self, ended: str) -> None:
        if self._live is None:
            return
        live, self._live = self._live, None
        live.transient = not ended
        with suppress(OSError):  # the terminal is gone, but the stage goes on
            live.update(self._text(ended), refresh=True)
            live.stop()

    def _text(self, line: str) -> Any:
        from rich.text import Text

        return Text(line, no_wrap=True, overflow="ellipsis")


@contextmanager
def show_progress(label: str) -> Iterator[ProgressDisplay]:
    """Show the progress of work outside a run's stages. The end is not announced on a terminal."""
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-progress-") as folder,
        ProgressDisplay(Path(folder)) as display,
        display.during(label, quietly=True),
    ):
        yield display


def period_s() -> float:
    """Return the longest time between two lines, in seconds. Raises ConfigError if the variable's value is wrong."""
    text = os.environ.get(PERIOD_VARIABLE, "")
    try:
        seconds = float(text) if text else PERIOD_S
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(
            f"{PERIOD_VARIABLE}: got {text!r}; give seconds from 0.1 to 3600, or leave it out for {PERIOD_S:g}"
        )
    return seconds


def _no_text() -> str:
    return ""
