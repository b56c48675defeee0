"""A folder with the picture and the JSON of each event, within a budget of bytes: the oldest are removed first.

    FOLDER/20261126T101530.250Z-ID.jpg
    FOLDER/20261126T101530.250Z-ID.json

There is one picture for each event, the frame that caused it, and no film. Files of other programs are never removed.
"""

from __future__ import annotations

import collections
import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.live.sinks.base import SinkContext, ThreadSink, check_folder, count_option, to_json
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError
from edgekit.runner.files import make_folder, remove_quietly, write_atomically

SCHEMES = ("folder",)
OPTIONS = ("max_bytes",)
MAX_BYTES = 1_000_000_000
FILE = re.compile(r"(\d{8}T\d{6}\.\d{3}Z-[\w-]+)\.(jpg|json)")


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Folder:
    """Return the sink for `folder:PATH`, or for the path of a folder."""
    path = address[len("folder:") :] if address.startswith("folder:") else address
    if not path:
        raise InputError("sink folder: the path is missing; use folder:/var/lib/events")
    return Folder(Path(path), context, count_option(options, "max_bytes", MAX_BYTES, f"sink folder:{path}"))


class Folder(ThreadSink):
    """Writes two files for each event, or one for an event without a picture."""

    def __init__(self, folder: Path, context: SinkContext, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(f"folder:{folder}")
        self._folder, self._context, self._max_bytes = folder, context, max_bytes
        self._files: collections.deque[tuple[str, int]] = collections.deque()
        self._bytes = 0

    def check(self) -> None:
        """Raise InputError if the folder cannot be written."""
        check_folder(self._folder, f"sink {self.name}")

    def start(self) -> None:
        """Look at what an earlier process left, and start the thread."""
        names = sorted(each.name for each in self._folder.iterdir() if FILE.fullmatch(each.name))
        self._files.extend((name, (self._folder / name).stat().st_size) for name in names)
        self._bytes = sum(size for _, size in self._files)
        self._make_space(0)
        super().start()

    def _deliver(self, event: Event, picture: bytes | None) -> None:
        stem = f"{_time_text(event.time_s)}-{_identifier(event.id)}"
        files = {f"{stem}.jpg": picture} if picture else {}
        files[f"{stem}.json"] = to_json(event, self._context) + b"\n"
        size = sum(map(len, files.values()))
        if size > self._max_bytes:
            raise ValueError(f"sink {self.name}: an event has {size} bytes, more than max_bytes; increase it")
        self._make_space(size)
        make_folder(self._folder)
        for name, data in files.items():
            write_atomically(self._folder / name, data)
            self._files.append((name, len(data)))
            self._bytes += len(data)

    def _make_space(self, size: int) -> None:
        while self._files and self._bytes + size > self._max_bytes:
            name, freed = self._files.popleft()
            remove_quietly(self._folder / name)
            self._bytes -= freed


def _time_text(time_s: float) -> str:
    """Return a time in UTC, so that the names are in the order of the events."""
    whole = int(time_s)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole)) + f".{int(1000 * (time_s - whole)):03d}Z"


def _identifier(name: str) -> str:
    """Return an id as a part of a file name, still unique."""
    plain = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:100]
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"
