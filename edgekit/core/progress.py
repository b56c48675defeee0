"""Report the progress of long work: the current step, how far it is, the best result so far and the time left.

Code reports its progress with `step`, `track` and `announce`. Where reports go depends on the listener: `edgekit run`
names a file in EDGEKIT_PROGRESS and reads it while the kernel works, a kernel of JupyterLab shows a live display, and
otherwise nobody listens. Progress is never stored: it is in no artifact, no cache key and no output of a stored
notebook.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edgekit.core.progress_state import ProgressState, StepState, elapsed
from edgekit.runner.files import BINARY

T = TypeVar("T")

FILE = "EDGEKIT_PROGRESS"
"""Environment variable that names the file for progress. Only `edgekit run`, which reads the file, creates it."""
RECORD_BYTES = 4096
"""Size of the file. Every write replaces all of it, so a reader sees the old state, the new state, or invalid JSON."""
PUBLISH_INTERVAL_S = 0.2
"""Shortest time between two updates within a step, so that updates do not disturb measurements."""
MIN_PACE_S = 1.0
"""The time left of a step is estimated only after the step has taken at least this time."""
MAX_MESSAGES = 3


class Step:
    """A step that is in progress. `update` reports how far it is."""

    def __init__(self, name: str, unit: str, of: int, done: float) -> None:
        self.state = StepState(name, unit, float(done), int(of))
        self._begun, self._began_at = time.monotonic(), done
        self._ends_at: float | None = None

    def expect(self, left_s: float | None) -> None:
        """Set the seconds left, for callers that know them better than the pace so far would show.

        The progress of inner steps then no longer affects the time left. If the step takes longer than these seconds,
        the display no longer says how much time is left. After a call with None, the time left is estimated from the
        pace again.
        """
        self._ends_at = None if left_s is None else time.monotonic() + left_s
        _publish(now=True)

    @property
    def has_known_end(self) -> bool:
        """Whether the step can estimate its end, because the number of its units is known or `expect` set a time."""
        return bool(self.state.of) or self._ends_at is not None

    def update(self, done: float, of: int | None = None, best: str | None = None, name: str | None = None) -> None:
        """Report that `done` of `of` units are done. Fractions of a unit count when the time left is estimated.

        An argument that is None leaves its value unchanged.
        """
        changes: dict[str, Any] = {
            "of": None if of is None else int(of),
            "best": best,
            "name": name,
        }  # `of` may be a NumPy integer
        changed = {key: value for key, value in changes.items() if value is not None}
        self.state = replace(self.state, done=float(done), **changed)
        _publish(now=bool(name))

    def left_s(self, inner: float) -> float | None:
        """Return the seconds left at the pace so far, or None if they are not known.

        `inner` is the finished fraction of the current unit.
        """
        if self._ends_at is not None:
            remaining = self._ends_at - time.monotonic()
            return remaining if remaining > 0 else None
        done, now = self.state.done + inner, time.monotonic()
        progress_made, elapsed_s = done - self._began_at, now - self._begun
        if not self.state.of or progress_made <= 0 or elapsed_s < MIN_PACE_S:
            return None
        return max(0.0, self.state.of - done) * elapsed_s / progress_made


class Listener(Protocol):
    """An object that receives progress."""

    def show(self, state: ProgressState) -> None:
        """Show a new state in place of the previous one. An error here must not end the work."""

    def end(self) -> None:
        """Show that the work has ended."""


class _FileListener:
    """The file that `edgekit run` reads.

    It is never created here, so a kernel that outlives the run leaves nothing behind.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def show(self, state: ProgressState) -> None:
        with suppress(Exception):  # a full disk, or a value that JSON cannot hold
            data = state.record(RECORD_BYTES - 1)
            handle = os.open(self._path, os.O_WRONLY | BINARY)
            try:
                os.write(handle, data.ljust(RECORD_BYTES - 1) + b"\n")
            finally:
                os.close(handle)

    def end(self) -> None:
        self.show(ProgressState(os.getpid(), said=tuple(_messages)))


_lock = threading.RLock()
_steps: list[Step] = []
_messages: list[tuple[int, str]] = []
_listener: Listener | None = None
_published_at = 0.0


@contextmanager
def step(name: str, unit: str = "", of: int = 0, done: float = 0.0) -> Iterator[Step]:
    """Show a step within the steps that are already in progress. `StepState` explains the arguments."""
    global _listener
    new_step = Step(name, unit, of, done)
    with _lock:
        if not _steps:
            _listener = _choose_listener()
        _steps.append(new_step)
        _publish(now=True)
    try:
        yield new_step
    finally:
        with _lock:
            _leave(new_step)


def _leave(ended: Step) -> None:
    """End a step. If it is the outermost one, also end the steps within it, which an error may have left open."""
    if ended not in _steps:
        return
    outermost = _steps[0] is ended
    _steps.remove(ended)
    if not outermost:
        _publish(now=True)
        return
    _steps.clear()
    if _listener is not None:
        _listener.end()


def track(
    items: Sequence[T], unit: str, name_of: Callable[[T], str] | None = None, best: Callable[[], str] | None = None
) -> Iterator[T]:
    """Yield the items one after another, shown as a step that counts them.

    Parameters
    ----------
    items
        The items to work on.
    unit
        The word for an item, for example `"epoch"`; see `StepState`.
    name_of
        Returns the name of the current item.
    best
        Returns a text about the best result so far. Called before each item.
    """
    with step("", unit, len(items)) as tracked:
        for number, item in enumerate(items):
            tracked.update(number, best=best() if best else None, name=name_of(item) if name_of else "")
            yield item


def call_both(first: Callable[[int], object], second: Callable[[int], object]) -> Callable[[int], None]:
    """Return a function that calls both functions, one after the other, with the same number."""

    def call(number: int) -> None:
        first(number)
        second(number)

    return call


def announce(text: str) -> None:
    """Show a sentence that stays on the terminal or in the live display. Call it within a step."""
    with _lock:
        number = _messages[-1][0] + 1 if _messages else 1
        _messages[:] = [*_messages, (number, text)][-MAX_MESSAGES:]
        _publish(now=True)


def read_state(path: Path) -> ProgressState | None:
    """Return the state in the file that `FILE` names, or None if there is no state or it was being written."""
    try:
        state = ProgressState.from_json(path.read_text(encoding="utf-8"))
        str(state)  # a state that cannot be shown does not count
    except (OSError, ArithmeticError, AttributeError, ValueError, KeyError, TypeError):
        return None
    return state


def _publish(now: bool = False) -> None:
    global _published_at
    if _listener is None or not (now or time.monotonic() - _published_at >= PUBLISH_INTERVAL_S):
        return
    with _lock:
        if not _steps:
            return
        _published_at = time.monotonic()
        _listener.show(ProgressState(os.getpid(), tuple(each.state for each in _steps), _left_s(), tuple(_messages)))


def _left_s() -> float | None:
    """Seconds left for the outermost step whose end is known, counting the progress of inner steps."""
    inner, left = 0.0, None
    for each in reversed(_steps):
        if each.has_known_end:
            left = each.left_s(inner)
        if each.state.of:
            inner = min(1.0, (each.state.done + inner) / each.state.of)
    return left


def _choose_listener() -> Listener | None:
    if path := os.environ.get(FILE):
        return _FileListener(path)
    return NotebookDisplay(_messages[-1][0] if _messages else 0) if is_open_notebook() else None


JUPYTER_SESSION = "JPY_SESSION_NAME"
"""Environment variable that Jupyter's server sets for kernels of its notebooks; papermill and nbval do not set it."""
DISPLAY_INTERVAL_S = 1.0
"""Time between two updates of the display. Work that is finished sooner shows nothing."""


class NotebookDisplay:
    """A live output of the cell. A thread updates it every second, because a long step may publish nothing new."""

    def __init__(self, last_said: int) -> None:
        """Create the display; `last_said` is the number of the last sentence announced before it."""
        self._handle: Any = None
        self._state: ProgressState | None = None
        self._began, self._last_said = time.monotonic(), last_said
        self._stop = threading.Event()
        context = contextvars.copy_context()  # the context says which cell the output belongs to
        self._thread = threading.Thread(target=context.run, args=(self._go_on,), daemon=True)
        with suppress(RuntimeError):  # no thread can be started, so nothing is shown
            self._thread.start()

    def show(self, state: ProgressState) -> None:
        """Set the state for the next update."""
        self._state = state

    def end(self) -> None:
        """Clear the output, so that nothing of it is stored."""
        self._stop.set()
        with suppress(RuntimeError):  # the thread was never started
            self._thread.join()
        if self._handle is not None:
            with suppress(Exception):  # a closed frontend must not end the work
                self._write({})

    def _go_on(self) -> None:
        while not self._stop.wait(DISPLAY_INTERVAL_S):
            with suppress(Exception):  # a closed frontend must not end the work
                self._write({"text/plain": self._text()})

    def _text(self) -> str:
        """The announced sentences, then the state and the time since the start."""
        sentences, text = [], ""
        if self._state is not None:
            sentences = [sentence for number, sentence in self._state.said if number > self._last_said]
            text = str(self._state)
        elapsed_text = elapsed(time.monotonic() - self._began)
        return "\n".join([*sentences, f"{text} · {elapsed_text}" if text else f"at work {elapsed_text}"])

    def _write(self, data: dict[str, str]) -> None:
        from IPython.display import DisplayHandle

        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)


def is_open_notebook() -> bool:
    """Return whether this process is the kernel of a notebook that is open in JupyterLab."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and JUPYTER_SESSION in os.environ else None
    return getattr(shell, "kernel", None) is not None


def write_to_stderr(line: str) -> None:
    """Write a line with its newline at once.

    `print` writes them in two calls, and lines of other threads get in between.
    """
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def write_named_to_stderr(name: str, line: str) -> None:
    """Write a line of one of several workers, beginning with the worker's name."""
    write_to_stderr(f"{name} · {line}")
