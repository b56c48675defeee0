"""What all sources have in common: a thread that reads, the newest frame, reconnection and a status.

A source's thread reads whatever arrives, and `Source.newest` returns the newest frame. A slow model therefore sees the
present and not a queue of the past; the frames between are counted as dropped. After a failure the source connects
again, first after FIRST_RETRY_S and then after twice as long each time, at most LONGEST_RETRY_S.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from edgekit.device.live.types import Frame
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import picture

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 2.0
"""A connection takes a second or two, and then a frame that can be decoded alone must come, all within 5 s."""
STALL_S = 10.0
"""A camera that sends nothing for so long is connected again."""
FIRST_FRAME_S = 20.0
"""Time that `check` gives a camera for its first frame."""
FREEZE_S = 10.0
STARTING, RUNNING, RECONNECTING, FROZEN, ENDED = "starting", "running", "reconnecting", "frozen", "ended"
PICTURE, AUDIO, ROWS = "picture", "audio", "rows"
BLOCK_ROWS = 64
"""Rows of a frame that are compared at a time, because most frames differ from the one before in their first rows."""


@dataclass(frozen=True)
class SourceStatus:
    """The state of a source, without secrets."""

    state: str
    frames: int
    """Frames that have arrived."""
    dropped: int
    """Frames that were replaced by a newer one before they were taken."""
    reconnects: int
    """Connections after the first that gave a frame."""
    detail: str
    """What went wrong last; empty while all is well."""
    width: int
    height: int


class NewestFrame:
    """A buffer of one frame. A newer frame replaces one that was not taken, unless `waits`."""

    def __init__(self, source: str, waits: bool, freeze_s: float) -> None:
        self.frames = self.dropped = 0
        self.shape: tuple[int, ...] = ()
        self.frozen_s = 0.0
        """Seconds for which the same bytes have arrived; 0 until they are called frozen."""
        self._source, self._waits, self._freeze_s = source, waits, freeze_s
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._is_closed = False
        self._previous: np.ndarray | None = None
        self._changed_s = 0.0

    def put(self, data: np.ndarray) -> None:
        """Add a frame that has just arrived."""
        arrived_s, time_s = time.monotonic(), time.time()
        if self._freeze_s:
            if self._previous is None or not _is_same(self._previous, data):
                self._changed_s = arrived_s
            still_s, self._previous = arrived_s - self._changed_s, data
            self.frozen_s = still_s if still_s >= self._freeze_s else 0.0
        with self._changed:
            while self._waits and self._frame is not None and not self._is_closed:
                self._changed.wait()
            self.dropped += self._frame is not None
            self._frame = Frame(self._source, self.frames, arrived_s, time_s, data)
            self.frames += 1
            self.shape = data.shape
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Frame | None:
        """Return the newest frame, once; None if none comes in time or the source has ended."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._frame is None and not self._is_closed:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and self._frame is None:
                    return None
            frame, self._frame = self._frame, None
            self._changed.notify_all()
            return frame

    def close(self) -> None:
        """Let nobody wait any longer. A frame that is here can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Source(ABC):
    """A source of frames. A subclass reads one connection in `_connect`.

    Parameters
    ----------
    address : Address
        Where the frames come from.
    options : SourceOptions
        What the user chose.
    raw : RawSpec
        The sample of the bundle. Raises InputError if the source cannot give such samples.
    """

    kind: str = PICTURE
    reconnects: ClassVar[bool] = True
    """Whether the source connects again after its end, as a camera does and a file does not."""
    has_size: ClassVar[bool] = False
    """Whether a size can be asked of it."""
    limits_rate: ClassVar[bool] = False
    """Whether `_connect` itself keeps to `rate`. If not, frames that come too early are left out."""

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        self.name, self.address, self.options, self.raw = options.name, address, options, raw
        self._check_options()
        never = 0.0 if self.kind == ROWS else FREEZE_S
        freeze_s = never if options.freeze_s is None else options.freeze_s
        self._buffer = NewestFrame(self.name, self.waits(), freeze_s)
        self._closed, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"source {self.name}", daemon=True)
        self._state, self._detail, self._reconnected = STARTING, "", 0
        self._problem: InputError | None = None

    def check(self) -> None:
        """Start, and wait for the first frame, or for a connection to what sends seldom, such as a sensor.

        Raises InputError with one line if none comes.
        """
        self.start()
        deadline = time.monotonic() + FIRST_FRAME_S
        while not self._ready.wait(0.05) and self._problem is None:
            if self._state == ENDED or time.monotonic() > deadline:
                why = "it ended without a frame" if self._state == ENDED else f"no frame within {FIRST_FRAME_S:.0f} s"
                self._problem = InputError(f"{self.address.shown}: {why}; check what it sends")
        if not self._ready.is_set() and self._problem is not None:
            self.close()
            raise self._problem
        if self.kind == PICTURE and self._buffer.shape != self.raw.shape:
            picture.import_pillow(f"{self.address.shown}: bringing frames to the bundle's size", "send them in it")

    def start(self) -> None:
        """Begin to read, in a thread. Does nothing if it was started before."""
        if not self._thread.is_alive() and not self._closed.is_set() and self._thread.ident is None:
            self._thread.start()

    def newest(self, timeout_s: float) -> Frame | None:
        """Return the newest frame if it was not returned before; None if none arrives in time, or at the end."""
        return self._buffer.take(timeout_s)

    def status(self) -> SourceStatus:
        """Return the present state."""
        buffer, state, detail = self._buffer, self._state, self._detail
        if state == RUNNING and buffer.frozen_s:
            state, detail = FROZEN, f"the same bytes for {buffer.frozen_s:.0f} s"
        height, width = buffer.shape[:2] if self.kind == PICTURE and buffer.shape else (0, 0)
        return SourceStatus(state, buffer.frames, buffer.dropped, self._reconnected, detail, width, height)

    def close(self) -> None:
        """Stop reading, and end child processes."""
        self._closed.set()
        self._disconnect()
        self._buffer.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        self._state = ENDED

    @abstractmethod
    def _connect(self) -> Iterator[np.ndarray]:
        """Connect, and yield each picture or sample as it arrives, until the end. Raises InputError on a failure."""

    def _disconnect(self) -> None:  # noqa: B027
        """Make `_connect` end soon, if it does not look at `_closed`. Called from any thread, perhaps repeatedly."""

    def waits(self) -> bool:
        """Whether each frame waits until it is taken."""
        return not self.reconnects and not self.options.realtime

    def _check_options(self) -> None:
        """Raise InputError if the bundle takes other samples, or an option does not apply."""
        shown, raw, options = self.address.shown, self.raw, self.options
        kinds = KINDS[self.kind]
        if raw.kind not in kinds or (self.kind == PICTURE and raw.dtype != "uint8"):
            raise InputError(
                f"{shown}: it gives {NOUNS[self.kind]}, but the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}"
            )
        if options.size and not self.has_size:
            raise InputError(f"{shown}: size: only v4l2 and rpicam can be asked for a size; set it in the camera")
        if options.ca_file and self.address.scheme != "mqtts":
            raise InputError(f"{shown}: ca_file: only mqtts:// takes one; leave it out")
        if (options.rotate or options.flip) and self.kind != PICTURE:
            raise InputError(f"{shown}: rotate and flip apply only to pictures; leave them out")

    def _run(self) -> None:
        delay_s, connection, due_s = FIRST_RETRY_S, 0, 0.0
        period_s = 1 / self.options.rate if self.options.rate and not self.limits_rate else 0.0
        while not self._closed.is_set():
            frames = self._buffer.frames
            problem: InputError | None = None
            try:
                for data in self._connect():
                    if self._closed.is_set():
                        break
                    if self._buffer.frames == frames:
                        self._reconnected += connection > 0
                        connection += 1
                        delay_s, self._state, self._detail = FIRST_RETRY_S, RUNNING, ""
                    if period_s:
                        now_s = time.monotonic()
                        if now_s < due_s - period_s / 4:
                            continue
                        due_s = max(due_s, now_s - period_s / 2) + period_s  # none follows a late one at once
                    self._buffer.put(self._oriented(data))
                    self._ready.set()
            except InputError as error:
                problem = error
            except Exception as error:  # a thread must not end silently
                problem = InputError(self.address.redact(f"{self.address.shown}: {type(error).__name__}: {error}"))
            self._disconnect()
            self._problem = self._problem or problem
            self._detail = str(problem or ("the stream ended" if self.reconnects else ""))
            if not self.reconnects:
                break
            self._state = RECONNECTING
            self._closed.wait(delay_s)
            delay_s = min(2 * delay_s, LONGEST_RETRY_S)
        self._state = ENDED
        self._buffer.close()

    def _oriented(self, data: np.ndarray) -> np.ndarray:
        return orient(data, self.options.rotate, self.options.flip) if self.kind == PICTURE else data


def orient(picture: np.ndarray, rotate: int, flip: str) -> np.ndarray:
    """Turn a picture (height, width, channels) clockwise by 0, 90, 180 or 270 degrees, and then flip it."""
    turned = np.rot90(picture, -rotate // 90) if rotate else picture
    if flip in ("horizontal", "both"):
        turned = turned[:, ::-1]
    if flip in ("vertical", "both"):
        turned = turned[::-1]
    return np.ascontiguousarray(turned)


def _is_same(first: np.ndarray, second: np.ndarray) -> bool:
    if first.shape != second.shape:
        return False
    blocks = range(0, len(first), BLOCK_ROWS)
    return all(np.array_equal(first[top : top + BLOCK_ROWS], second[top : top + BLOCK_ROWS]) for top in blocks)


KINDS = {PICTURE: ("image",), AUDIO: ("audio",), ROWS: ("window", "vector")}
"""Kinds of samples that each kind of source can give."""
NOUNS = {PICTURE: "pictures", AUDIO: "sound", ROWS: "rows of numbers"}
