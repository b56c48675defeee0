"""What viewers wait for: the newest drawn picture of each source, the state and the events."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from edgekit.device.live.pictures import Painter, encode_jpeg

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.bundle.manifest import Manifest

EVENTS = 50
STEP_S = 10.0
"""How long viewers wait before they show that they are still there."""
FRESH_S = 2.0
"""How long a single picture is waited for. A source that has stopped gives none."""


class Hub:
    """The newest of everything. One thread draws and encodes each picture once, for all its viewers.

    Parameters
    ----------
    manifests : dict
        The manifests of the models by name.
    tell : callable
        Sends a dict to the parent.
    """

    def __init__(self, manifests: dict[str, Manifest], tell: Callable[[dict[str, Any]], object]) -> None:
        self._painters, self._tell = {name: Painter(each) for name, each in manifests.items()}, tell
        self._changed = threading.Condition()
        self._viewers: dict[str, int] = {}
        self._listeners = 0
        self._waiting: dict[str, tuple[dict[str, Any], list[np.ndarray]]] = {}
        self._pictures: dict[str, tuple[int, bytes]] = {}
        self._state: tuple[int, str] = (0, "")
        self._events: deque[tuple[int, str]] = deque(maxlen=EVENTS)
        self._event_count = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._asked = 0
        threading.Thread(target=self._draw, name="edgerun drawing", daemon=True).start()

    def receive(self, message: dict[str, Any], arrays: list[np.ndarray]) -> None:
        """Take a message of the parent."""
        with self._changed:
            if message["kind"] == "picture":
                self._waiting[message["source"]] = message, arrays
            elif message["kind"] == "state":
                self._state = self._state[0] + 1, json.dumps(message["state"], allow_nan=False)
            elif message["kind"] == "event":
                self._event_count += 1
                self._events.append((self._event_count, json.dumps(message["event"], allow_nan=False)))
            elif message["kind"] == "kept" and message["id"] in self._replies:
                self._replies[message["id"]] = message
            self._changed.notify_all()

    @contextmanager
    def viewing(self, source: str | None) -> Iterator[None]:
        """Count as a viewer of a source's pictures, or of the state if `source` is None."""
        self._count(source, 1)
        try:
            yield
        finally:
            self._count(source, -1)

    def viewers(self, source: str | None) -> int:
        """Return the number of viewers of a source, or of the state."""
        return self._listeners if source is None else self._viewers.get(source, 0)

    def pictures(self, source: str) -> Iterator[bytes]:
        """Yield each new picture of a source as JPEG, and b"" if there was none for `STEP_S` seconds."""
        seen = 0
        while True:
            with self._changed:
                self._wait_for_picture(source, seen)
                number, data = self._pictures.get(source, (0, b""))
            yield data if number > seen else b""
            seen = number

    def newest(self, source: str) -> bytes:
        """Return the next picture of a source as JPEG. If there is none for `FRESH_S` seconds, it is the last one."""
        with self._changed:
            seen = self._pictures.get(source, (0, b""))[0]
            self._changed.wait_for(lambda: self._pictures.get(source, (0, b""))[0] > seen, FRESH_S)
            return self._pictures.get(source, (0, b""))[1]

    def messages(self) -> Iterator[tuple[str, str]]:
        """Yield ("state" or "event", JSON) for every change, and ("", "") if there was none for `STEP_S` seconds."""
        seen, heard = self._state[0], 0  # an old state is not shown; the events so far are
        while True:
            with self._changed:
                self._wait_for_message(seen, heard)
                state, events = self._state, [text for number, text in self._events if number > heard]
                heard = self._event_count
            for text in events:
                yield "event", text
            if state[0] > seen:
                seen = state[0]
                yield "state", state[1]
            elif not events:
                yield "", ""

    def keep(self, source: str, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask the parent to keep the picture that is shown. Returns its answer: `ok` and `text`."""
        with self._changed:
            self._asked += 1
            number = self._asked
            self._replies[number] = {}
        self._tell({"keep": source, "id": number})
        with self._changed:
            self._changed.wait_for(lambda: self._replies[number], timeout_s)
            reply = self._replies.pop(number)
        return {"ok": bool(reply.get("ok")), "text": reply.get("text", "no answer in time")}

    def _wait_for_picture(self, source: str, seen: int) -> None:
        self._changed.wait_for(lambda: self._pictures.get(source, (0,))[0] > seen, STEP_S)

    def _wait_for_message(self, seen: int, heard: int) -> None:
        self._changed.wait_for(lambda: self._state[0] > seen or self._event_count > heard, STEP_S)

    def _count(self, source: str | None, change: int) -> None:
        with self._changed:
            if source is None:
                self._listeners += change
            else:
                self._viewers[source] = self._viewers.get(source, 0) + change
            counts = {"viewers": dict(self._viewers), "listeners": self._listeners}
            self._tell(counts)  # inside the lock, so that the counts arrive in order

    def _draw(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                source, (message, arrays) = next(iter(self._waiting.items()))
                del self._waiting[source]
            data = b""
            if self._viewers.get(source):
                with suppress(Exception):  # a picture that cannot be drawn must not end the thread
                    data = self._encode(message, arrays)
            with self._changed:
                if data:
                    self._pictures[source] = self._pictures.get(source, (0,))[0] + 1, data
                    self._changed.notify_all()
            self._tell({"drawn": source})

    def _encode(self, message: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
        """Return a picture with its answers as JPEG."""
        pixels, *outputs = arrays
        for model, each, text in zip(message["models"], outputs, message["texts"]):
            pixels = self._painters[model].draw(pixels, each, text)
        return encode_jpeg(pixels)
