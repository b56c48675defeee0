"""Progress of what takes long: which step, how far it is, the best so far and the time left.

Whoever works says so here, by `step` and `say`. Who listens decides where it goes: `edgekit run` names a file by
EDGEKIT_PROGRESS and reads it beside the kernel; a kernel of JupyterLab shows a live display; otherwise nobody listens.
Nothing of it is kept: it is in no artifact, in no key and in no stored output of a notebook.
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
"""Environment variable: the file that `edgekit run` reads. It must exist; nobody but `edgekit run` creates it."""
RECORD_BYTES = 4096
"""Every write replaces the whole record, so a reader sees the old one, the new one, or no JSON."""
PUBLISH_INTERVAL_S = 0.2
"""Steps within a step are published so often at most: what is measured beside it must not notice."""
MIN_PACE_S = 1.0
"""Of a shorter time no time left is concluded."""
MAX_MESSAGES = 3


class Step:
    """A step that goes on; `at` says how far it is."""

    def __init__(self, name: str, unit: str, of: int, done: float) -> None:
        self.state = StepState(name, unit, float(done), int(of))
        self._begun, self._began_at = time.monotonic(), done
        self._ends_at: float | None = None

    def expect(self, left_s: float | None) -> None:
        """Seconds left, by somebody who knows better than the pace; what is within the step then counts no more.

        Once they are over nobody knows how many are left. None: nobody knew, and the pace tells again.
        """
        self._ends_at = None if left_s is None else time.monotonic() + left_s
        _publish(now=True)

    @property
    def has_known_end(self) -> bool:
        """Whether it says itself how long it lasts: it is counted, or somebody has said so."""
        return bool(self.state.of) or self._ends_at is not None

    def update(self, done: float, of: int | None = None, best: str | None = None, name: str | None = None) -> None:
        """`done` units are done, of `of`; a fraction counts towards the time left. What is None stays as it is."""
        new: dict[str, Any] = {"of": None if of is None else int(of), "best": best, "name": name}  # numpy's too
        kept = {key: value for key, value in new.items() if value is not None}
        self.state = replace(self.state, done=float(done), **kept)
        _publish(now=bool(name))

    def left_s(self, inner: float) -> float | None:
        """Seconds left at the pace so far, `inner` being the share of the unit under way; None while nobody knows."""
        if self._ends_at is not None:
            rest = self._ends_at - time.monotonic()
            return rest if rest > 0 else None
        done, now = self.state.done + inner, time.monotonic()
        gained, taken = done - self._began_at, now - self._begun
        if not self.state.of or gained <= 0 or taken < MIN_PACE_S:
            return None
        return max(0.0, self.state.of - done) * taken / gained


class Listener(Protocol):
    """Where progress goes."""

    def show(self, state: ProgressState) -> None:
        """The state of now, in place of the one before; what goes wrong here must not end the work."""

    def end(self) -> None:
        """Nothing goes on any more."""


class _ToFile:
    """The file that `edgekit run` reads. It is never created here: a kernel that outlives the run leaves nothing."""

    def __init__(self, path: str) -> None:
        self._path = path

    def show(self, state: ProgressState) -> None:
        with suppress(Exception):  # a full disk, or what JSON cannot hold
            data = state.record(RECORD_BYTES - 1)
            handle = os.open(self._path, os.O_WRONLY | BINARY)
            try:
                os.write(handle, data.ljust(RECORD_BYTES - 1) + b"\n")
            finally:
                os.close(handle)

    def end(self) -> None:
        self.show(ProgressState(os.getpid(), said=tuple(_said)))


_lock = threading.RLock()
_steps: list[Step] = []
_said: list[tuple[int, str]] = []
_listener: Listener | None = None
_published_at = 0.0


@contextmanager
def step(name: str, unit: str = "", of: int = 0, done: float = 0.0) -> Iterator[Step]:
    """A step within those that go on already; see `Shown` for the words."""
    global _listener
    one = Step(name, unit, of, done)
    with _lock:
        if not _steps:
            _listener = _who_listens()
        _steps.append(one)
        _publish(now=True)
    try:
        yield one
    finally:
        with _lock:
            _leave(one)


def _leave(one: Step) -> None:
    """It has ended, and with the outermost all that an error left open within it."""
    if one not in _steps:
        return
    outermost = _steps[0] is one
    _steps.remove(one)
    if not outermost:
        _publish(now=True)
        return
    _steps.clear()
    if _listener is not None:
        _listener.end()


def track(
    items: Sequence[T], unit: str, called: Callable[[T], str] | None = None, best: Callable[[], str] | None = None
) -> Iterator[T]:
    """The items, one after another, shown as a step that counts them.

    `called` names the one under way. `best` is asked before each for the best of those before it.
    """
    with step("", unit, len(items)) as shown:
        for number, item in enumerate(items):
            shown.update(number, best=best() if best else None, name=called(item) if called else "")
            yield item


def call_both(first: Callable[[int], object], second: Callable[[int], object]) -> Callable[[int], None]:
    """Calls one after the other, with the same number."""

    def call(number: int) -> None:
        first(number)
        second(number)

    return call


def announce(text: str) -> None:
    """A sentence that stays to be read, on the terminal or in the live display; within a step."""
    with _lock:
        number = _said[-1][0] + 1 if _said else 1
        _said[:] = [*_said, (number, text)][-MAX_MESSAGES:]
        _publish(now=True)


def read_state(path: Path) -> ProgressState | None:
    """The state in the file that `FILE` names; None where there is none, or a write was met half-way."""
    try:
        state = ProgressState.from_json(path.read_text(encoding="utf-8"))
        str(state)  # figures that have no words are no state either
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
        _listener.show(ProgressState(os.getpid(), tuple(each.state for each in _steps), _left_s(), tuple(_said)))


def _left_s() -> float | None:
    """Of the outermost step that is counted: what is within it is a share of its unit."""
    inner, left = 0.0, None
    for each in reversed(_steps):
        if each.has_known_end:
            left = each.left_s(inner)
        if each.state.of:
            inner = min(1.0, (each.state.done + inner) / each.state.of)
    return left


def _who_listens() -> Listener | None:
    if path := os.environ.get(FILE):
        return _ToFile(path)
    return NotebookDisplay(_said[-1][0] if _said else 0) if is_open_notebook() else None


JUPYTER_SESSION = "JPY_SESSION_NAME"
"""Environment variable that Jupyter's server sets for the kernels of its notebooks; papermill and nbval set none."""
DISPLAY_INTERVAL_S = 1.0
"""What is over sooner shows nothing. Updates come no faster, for they are sent beside what is measured."""


class NotebookDisplay:
    """One output of the cell, from the first second on; a thread updates it, for a long step may publish nothing."""

    def __init__(self, last_said: int) -> None:
        """`last_said`: the number of the last sentence that was said before."""
        self._handle: Any = None
        self._state: ProgressState | None = None
        self._began, self._last_said = time.monotonic(), last_said
        self._stop = threading.Event()
        context = contextvars.copy_context()  # says which cell the output belongs to
        self._thread = threading.Thread(target=context.run, args=(self._go_on,), daemon=True)
        with suppress(RuntimeError):  # no more threads: then there is less to show
            self._thread.start()

    def show(self, state: ProgressState) -> None:
        """The state of now, for the next update."""
        self._state = state

    def end(self) -> None:
        """Nothing is left of it to be stored."""
        self._stop.set()
        with suppress(RuntimeError):  # it never began
            self._thread.join()
        if self._handle is not None:
            with suppress(Exception):  # as below
                self._write({})

    def _go_on(self) -> None:
        while not self._stop.wait(DISPLAY_INTERVAL_S):
            with suppress(Exception):  # a frontend that has gone must not end what it watched
                self._write({"text/plain": self._text()})

    def _text(self) -> str:
        """What goes on and since when; what was said for good stands above it until the end."""
        said, text = [], ""
        if self._state is not None:
            said = [sentence for number, sentence in self._state.said if number > self._last_said]
            text = str(self._state)
        taken = elapsed(time.monotonic() - self._began)
        return "\n".join([*said, f"{text} · {taken}" if text else f"at work {taken}"])

    def _write(self, data: dict[str, str]) -> None:
        from IPython.display import DisplayHandle

        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)


def is_open_notebook() -> bool:
    """Whether this process is a kernel of a notebook that is open in JupyterLab."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and JUPYTER_SESSION in os.environ else None
    return getattr(shell, "kernel", None) is not None


def write_to_stderr(line: str) -> None:
    """Write `line` and its end at once: `print` writes them in two calls, and another thread's line gets between."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def write_named_to_stderr(name: str, line: str) -> None:
    """A line of one of several that are at work, as progress shows it: the name stands before it."""
    write_to_stderr(f"{name} · {line}")
