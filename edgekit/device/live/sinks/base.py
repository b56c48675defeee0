"""What every sink has in common: the contract, the facts it is given, its status, and a thread with a queue."""

from __future__ import annotations

import collections
import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.device.live.sinks import disk_queue
from edgekit.device.live.sinks.disk_queue import DiskQueue
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError
from edgekit.runner.files import make_folder

KINDS = ("on", "off", "count")
MOST_WAITING = 256
"""How many events wait in memory for a sink without a queue on disk; the oldest is dropped then."""


class UnreachableError(InputError):
    """The receiver does not answer now, but may answer later. Events would wait for it in the queue."""


@dataclass(frozen=True)
class SinkContext:
    """What a sink may need to know about the device and about what runs on it."""

    device_id: str
    bundle_name: str
    version: str
    labels: Sequence[str]
    sources: Mapping[str, str]
    """`picture`, `audio` or `rows`, by the name of the source."""
    rules: Mapping[str, str]
    """By the name of the rule: `state` for the events `on` and `off`, `count` for a counter that only grows, or
    `occupancy` for one that also falls."""
    home: Path
    """A folder for queues on disk."""
    watched: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The sources of a rule, by its name; all sources for a rule that is missing or has none."""

    def pairs(self) -> list[tuple[str, str]]:
        """Return each source with each rule that watches it."""
        return [
            (source, rule)
            for source in self.sources
            for rule in self.rules
            if source in (self.watched.get(rule) or self.sources)
        ]


@dataclass(frozen=True)
class SinkStatus:
    """What a sink is doing."""

    state: str
    """`starting`, `running`, `retrying` while the receiver is away, or `ended`."""
    sent: int
    waiting: int
    failed: int
    """Events that were given up: refused by the receiver, or dropped because the queue was full."""
    detail: str = ""
    """The last problem, without any secret."""


@dataclass(frozen=True)
class Filter:
    """Which events a sink takes."""

    rules: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def takes(self, event: Event) -> bool:
        """Whether the sink takes the event."""
        return (self.rules is None or event.rule in self.rules) and (self.kinds is None or event.kind in self.kinds)


class Sink(ABC):
    """A receiver of events. `name` is its address as messages show it, without any secret.

    `check` is called before `start`, and `start` before `send`.
    """

    name: str
    only: Filter = Filter()
    clip_s = 0.0
    """For how many seconds around an event the sink takes pictures (`add_picture`)."""

    @abstractmethod
    def check(self) -> None:
        """Raise InputError with one line if the sink cannot work: UnreachableError if that may change by itself."""

    @abstractmethod
    def start(self) -> None:
        """Start the thread that delivers."""

    def send(self, event: Event, picture: bytes | None = None) -> None:
        """Queue an event with the JPEG file of its picture. Never waits."""
        if self.only.takes(event):
            self._put(event, picture)

    def add_picture(self, source: str, time_s: float, picture: bytes) -> None:  # noqa: B027
        """Take a JPEG file of what a source sees. It may wait; pictures come from one thread."""

    @abstractmethod
    def status(self) -> SinkStatus:
        """Return what the sink is doing."""

    @abstractmethod
    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, at most for this long, and end."""

    @abstractmethod
    def _put(self, event: Event, picture: bytes | None) -> None:
        """Queue an event."""


class ThreadSink(Sink):
    """A sink whose thread delivers one event after the other, with a bounded queue in memory."""

    idle_s: float | None = None
    """After so long without an event, `_on_idle` runs, and again after each further such time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._waiting: collections.deque[tuple[Event, bytes | None]] = collections.deque()
        self._busy = self._closing = False
        self._sent = self._failed = 0
        self._problem = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that delivers."""
        self._thread = threading.Thread(target=self._run, name="edgerun sink", daemon=True)
        self._thread.start()

    def status(self) -> SinkStatus:
        """Return what the sink is doing."""
        with self._changed:
            is_running = self._thread is not None and self._thread.is_alive()
            state = "running" if is_running else "ended" if self._thread else "starting"
            waiting = len(self._waiting) + self._busy
            return SinkStatus(state, self._sent, waiting, self._failed, self._problem)

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, at most for this long, and end."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._busy), timeout_s if self._thread else 0)
            self._failed += len(self._waiting)
            self._waiting.clear()
            self._closing = True
            self._changed.notify_all()
        self._interrupt()
        if self._thread:
            self._thread.join(timeout_s)

    def _put(self, event: Event, picture: bytes | None) -> None:
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self._failed += 1
                self._problem = f"dropped events, because {MOST_WAITING} were waiting"
            self._waiting.append((event, picture))
            self._changed.notify_all()

    @abstractmethod
    def _deliver(self, event: Event, picture: bytes | None) -> None:
        """Deliver an event. Any exception counts it as failed, and its text becomes the detail of the status."""

    def _on_idle(self) -> None:
        """Do what is due while no event comes. Must not raise."""

    def _interrupt(self) -> None:
        """End a delivery that takes longer than `close` may."""

    def _end(self) -> None:
        """Release what the thread holds. Runs in the thread."""

    def _run(self) -> None:
        while True:
            with self._changed:
                is_idle = not self._changed.wait_for(lambda: self._waiting or self._closing, self.idle_s)
                if self._closing and not self._waiting:
                    break
                if not is_idle:
                    event, picture = self._waiting.popleft()
                    self._busy = True
            if is_idle:
                self._on_idle()
                continue
            problem = ""
            try:
                self._deliver(event, picture)
            except Exception as error:  # a sink must not end because of one event
                problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
            with self._changed:
                self._busy = False
                self._sent, self._failed = self._sent + (not problem), self._failed + bool(problem)
                self._problem = problem or self._problem
                self._changed.notify_all()
        with suppress(Exception):
            self._end()


class QueueSink(Sink):
    """A sink whose thread sends events from a queue on disk, in `folder`, of at most so many bytes."""

    def __init__(self, name: str, folder: Path, queue_bytes: int) -> None:
        self.name, self._folder, self._queue_bytes = name, folder, queue_bytes
        self._wake, self._closing = threading.Event(), threading.Event()
        self._queue: DiskQueue | None = None
        self._thread: threading.Thread | None = None
        self._state, self._problem, self._sent = "starting", "", 0

    def start(self) -> None:
        """Open the queue and start the thread that sends."""
        self._queue = self._open_queue()
        self._thread = threading.Thread(target=self._run, args=(self._queue,), name="edgerun sink", daemon=True)
        self._thread.start()

    def _check_queue(self) -> None:
        """Raise InputError or ResourceError if the queue cannot be written, or another process uses it."""
        check_folder(self._folder, f"sink {self.name}")
        disk_queue.check_unused(self._folder)

    def _open_queue(self) -> DiskQueue:
        return DiskQueue(self._folder, self._queue_bytes, self._wake.set)

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, at most for this long; the rest stays on disk for the next start."""
        deadline = time.monotonic() + timeout_s
        if self._thread and self._queue is not None:
            while self.status().waiting and self._state != "retrying" and time.monotonic() < deadline:
                time.sleep(0.01)
            self._closing.set()
            self._wake.set()
            self._thread.join(max(0.5, deadline - time.monotonic()))
            self._queue.close()
        self._state = "ended"

    @abstractmethod
    def _run(self, queue: DiskQueue) -> None:
        """Send events until `_closing` is set. Runs in the thread."""


@dataclass
class Backoff:
    """Growing pauses between attempts: they double up to a limit, and each is shortened at random."""

    first_s: float
    most_s: float
    _next_s: float = field(default=0.0, init=False)

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._next_s = 0.0

    def pause_s(self) -> float:
        """Return the next pause, from half of its length to all of it."""
        import random

        self._next_s = min(2 * self._next_s, self.most_s) if self._next_s else self.first_s
        return self._next_s * random.uniform(0.5, 1.0)


def to_json(event: Event, context: SinkContext) -> bytes:
    """Return an event as a JSON object with the device that sends it."""
    return json.dumps({**event.to_dict(), "device": context.device_id}, separators=(",", ":")).encode()


def device_end(context: SinkContext) -> bytes:
    """Return the end that the JSON objects of this device, and of no other, have."""
    return json.dumps({"device": context.device_id}, separators=(",", ":")).encode()[1:]


def wait_until(condition: Callable[[], object], wake: threading.Event, timeout_s: float) -> bool:
    """Wait until the condition holds, looking again whenever `wake` is set. Returns whether it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        wake.wait(min(remaining_s, 0.5))
        wake.clear()
    return True


def check_folder(folder: Path, where: str) -> None:
    """Raise InputError unless files can be written to the folder, which is created if it is missing."""
    probe = folder / f".edgerun-{os.getpid()}.tmp"
    try:
        make_folder(folder)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"{where}: {folder}: {error.strerror or error}; name a folder that this user may write to"
        ) from None


def count_option(options: Mapping[str, Any], name: str, default: int, where: str, most: int = 2**50) -> int:
    """Return an option that is a whole number from 1."""
    value = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{where}: {name}: got {value!r}; use a whole number from 1 to {most}")
    return value


def seconds_option(options: Mapping[str, Any], name: str, default: float, where: str, most: float = 86_400.0) -> float:
    """Return an option that is a positive number of seconds."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise InputError(f"{where}: {name}: got {value!r}; use a number of seconds above 0, at most {most:g}")
    return float(value)


def flag_option(options: Mapping[str, Any], name: str, where: str) -> bool:
    """Return an option that is true or false; false by default."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {name}: got {value!r}; use true or false")
    return value


def text_option(options: Mapping[str, Any], name: str, default: str, where: str) -> str:
    """Return an option that is a text. The message does not show the value, because it may be a secret."""
    value = options.get(name, default)
    if not isinstance(value, str):
        raise InputError(f"{where}: {name}: got a {type(value).__name__}; use a text in quotes")
    return value
