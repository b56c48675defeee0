"""Progress of what takes long: which step, how far it is, the best so far and the time left.

Whoever works says so here, by `step` and `say`. Who listens decides where it goes: `edgekit run` names a file by
EDGEKIT_PROGRESS and reads it beside the kernel; a kernel of JupyterLab shows a live display; otherwise nobody listens.
Nothing of it is kept: it is in no artifact, in no key and in no stored output of a notebook.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

FILE = "EDGEKIT_PROGRESS"
"""Environment variable: the file that `edgekit run` reads. It must exist; nobody but `edgekit run` creates it."""
RECORD_BYTES = 4096
"""Every write replaces the whole record, so a reader sees the old one, the new one, or no JSON."""
EVERY_S = 0.2
"""Steps within a step are told so often at most: what is measured beside it must not notice."""
SURE_AFTER_S = 1.0
"""Of a shorter time no time left is concluded."""
MOST_SAID = 3


@dataclass(frozen=True)
class Shown:
    """A step as it stands: `done` of `of` units; `of` 0: nobody knows how many.

    A unit in the singular counts the one under way ("epoch 4 of 40"), in the plural what is done ("10 of 64 samples").
    """

    name: str
    unit: str = ""
    done: float = 0.0
    of: int = 0
    best: str = ""

    def __str__(self) -> str:
        parts = [self.name, self._count(), f"best {self.best}" if self.best else ""]
        return " · ".join(filter(None, parts))

    def _count(self) -> str:
        if not self.unit:
            return ""
        amount = self.unit.endswith("s")
        if amount and not self.of and not self.done:
            return ""
        number = int(self.done) if amount else int(self.done) + 1
        if not self.of:
            return f"{number:,} {self.unit}" if amount else f"{self.unit} {number:,}"
        number = min(number, self.of)
        return f"{number:,} of {self.of:,} {self.unit}" if amount else f"{self.unit} {number:,} of {self.of:,}"


@dataclass(frozen=True)
class State:
    """What goes on: steps, the outermost first, the seconds left of them, and sentences said, numbered from 1."""

    process: int
    steps: tuple[Shown, ...] = ()
    left_s: float | None = None
    said: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        left = "" if self.left_s is None else f"about {duration(self.left_s)} left"
        return " · ".join(filter(None, [*map(str, self.steps), left]))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> State:
        """ValueError, KeyError or TypeError where it is none."""
        found = json.loads(text)
        steps = tuple(Shown(**step) for step in found["steps"])
        return cls(found["process"], steps, found["left_s"], tuple((int(n), str(t)) for n, t in found["said"]))


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `1 h 20 min`: as exact as an estimate deserves."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


class Step:
    """A step that goes on; `at` says how far it is."""

    def __init__(self, name: str, unit: str, of: int, done: float) -> None:
        self.shown = Shown(name, unit, done, of)
        self._begun, self._began_at = time.monotonic(), done

    def at(self, done: float, of: int | None = None, best: str | None = None, name: str | None = None) -> None:
        """`done` units are done, of `of`; a fraction counts towards the time left. What is None stays as it is."""
        new: dict[str, Any] = {"of": of, "best": best, "name": name}
        self.shown = replace(self.shown, done=done, **{key: value for key, value in new.items() if value is not None})
        _tell(now=bool(name))

    def left_s(self, inner: float) -> float | None:
        """Seconds left at the pace so far, `inner` being the share of the unit under way; None while nobody knows."""
        done, now = self.shown.done + inner, time.monotonic()
        gained, taken = done - self._began_at, now - self._begun
        if not self.shown.of or gained <= 0 or taken < SURE_AFTER_S:
            return None
        return max(0.0, self.shown.of - done) * taken / gained


class Listener(Protocol):
    """Where progress goes."""

    def show(self, state: State) -> None:
        """The state of now, in place of the one before; what goes wrong here must not end the work."""

    def end(self) -> None:
        """Nothing goes on any more."""


class _ToFile:
    """The file that `edgekit run` reads. It is never created here: a kernel that outlives the run leaves nothing."""

    def __init__(self, path: str) -> None:
        self._path = path

    def show(self, state: State) -> None:
        data = state.to_json().encode()
        if len(data) >= RECORD_BYTES:
            return
        with suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY)
            try:
                os.pwrite(handle, data.ljust(RECORD_BYTES - 1) + b"\n", 0)
            finally:
                os.close(handle)

    def end(self) -> None:
        self.show(State(os.getpid(), said=tuple(_said)))


_lock = threading.RLock()
_steps: list[Step] = []
_said: list[tuple[int, str]] = []
_listener: Listener | None = None
_told_at = 0.0


@contextmanager
def step(name: str, unit: str = "", of: int = 0, done: float = 0.0) -> Iterator[Step]:
    """A step within those that go on already; see `Shown` for the words."""
    global _listener
    one = Step(name, unit, of, done)
    with _lock:
        if not _steps:
            _listener = _who_listens()
        _steps.append(one)
        _tell(now=True)
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
        _tell(now=True)
        return
    _steps.clear()
    if _listener is not None:
        _listener.end()


def each(items: Sequence[T], unit: str, called: Callable[[T], str] | None = None) -> Iterator[T]:
    """The items, one after another, shown as a step that counts them; `called` names the one under way."""
    with step("", unit, len(items)) as shown:
        for number, item in enumerate(items):
            shown.at(number, name=called(item) if called else "")
            yield item


def both(first: Callable[[int], object], second: Callable[[int], object]) -> Callable[[int], None]:
    """Calls one after the other: for those that hear of rounds."""

    def call(number: int) -> None:
        first(number)
        second(number)

    return call


def say(text: str) -> None:
    """A sentence that stays to be read, on the terminal or in the live display; within a step."""
    with _lock:
        number = _said[-1][0] + 1 if _said else 1
        _said[:] = [*_said, (number, text)][-MOST_SAID:]
        _tell(now=True)


def read(path: Path) -> State | None:
    """The state in the file that `FILE` names; None where there is none, or a write was met half-way."""
    try:
        return State.from_json(path.read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tell(now: bool = False) -> None:
    global _told_at
    if _listener is None or not (now or time.monotonic() - _told_at >= EVERY_S):
        return
    with _lock:
        if not _steps:
            return
        _told_at = time.monotonic()
        _listener.show(State(os.getpid(), tuple(each.shown for each in _steps), _left_s(), tuple(_said)))


def _left_s() -> float | None:
    """Of the outermost step that is counted: what is within it is a share of its unit."""
    inner, left = 0.0, None
    for each in reversed(_steps):
        if each.shown.of:
            left = each.left_s(inner)
            inner = min(1.0, (each.shown.done + inner) / each.shown.of)
    return left


def _who_listens() -> Listener | None:
    if path := os.environ.get(FILE):
        return _ToFile(path)
    return _in_jupyter()


def _in_jupyter() -> Listener | None:
    return None
