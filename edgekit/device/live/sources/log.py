"""The last lines that a child process writes to its standard error, which say why it failed."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any

KEPT_LINES = 30
LONGEST_LINE = 400


class LastLines:
    """Reads a stream in a thread, so that its writer never waits."""

    def __init__(self, stream: Any) -> None:
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._thread = threading.Thread(target=self._read, args=(stream,), name="source log", daemon=True)
        self._thread.start()

    def lines(self, timeout_s: float) -> list[str]:
        """Return the last lines, after waiting so long for the end of the stream."""
        self._thread.join(timeout_s)
        return list(self._kept)

    def add(self, line: bytes) -> None:
        """Keep a line."""
        self._kept.append(line.decode(errors="replace").strip()[:LONGEST_LINE])

    def end(self) -> None:
        """Do nothing more at the end of the stream."""

    def _read(self, stream: Any) -> None:
        rest = b""
        with stream, suppress(OSError):
            while data := stream.read(1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.add(line)
                rest = rest[-4096:]
        if rest:
            self.add(rest)
        self.end()
