"""A folder with the picture and the JSON of each event, within a budget of bytes: the oldest are removed first.

    FOLDER/20261126T101530.250Z-ID.jpg
    FOLDER/20261126T101530.250Z-ID.json
    FOLDER/20261126T101530.250Z-ID.avi

The picture is the frame that caused the event. The film is there with `clip_s`, and shows so many seconds before the
event and after it (`clips`). Files of other programs are never removed.
"""

from __future__ import annotations

import collections
import os
import re
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.live.sinks import clips
from edgekit.device.live.sinks.base import (
    SinkContext,
    ThreadSink,
    check_folder,
    count_option,
    seconds_option,
    to_json,
)
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError
from edgekit.runner.files import make_folder, remove_quietly, write_atomically
from edgekit.runner.inputs.picture import import_pillow

SCHEMES = ("folder",)
OPTIONS = ("max_bytes", "clip_s")
MAX_BYTES = 1_000_000_000
IDLE_S = 1.0
"""How often to look for clips of cameras that have gone away."""
FILE = re.compile(r"(\d{8}T\d{6}\.\d{3}Z-[\w-]+)\.(avi|jpg|json)")


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Folder:
    """Return the sink for `folder:PATH`, or for the path of a folder."""
    path = address[len("folder:") :] if address.startswith("folder:") else address
    if not path:
        raise InputError("sink folder: the path is missing; use folder:/var/lib/events")
    where = f"sink folder:{path}"
    clip_s = seconds_option(options, "clip_s", 0.0, where, clips.MOST_S) if "clip_s" in options else 0.0
    if clip_s:
        if "picture" not in context.sources.values():
            raise InputError(f"{where}: clip_s: got {clip_s:g}, but no source gives pictures; leave it out")
        import_pillow(f"{where}: clip_s", "leave it out")
    return Folder(Path(path), context, count_option(options, "max_bytes", MAX_BYTES, where), clip_s)


class Folder(ThreadSink):
    """Writes the files of each event: a picture and a film if there are pictures, and the event."""

    def __init__(self, folder: Path, context: SinkContext, max_bytes: int = MAX_BYTES, clip_s: float = 0.0) -> None:
        super().__init__(f"folder:{folder}")
        self.clip_s, self._clips = clip_s, clips.Clips(clip_s) if clip_s else None
        self.idle_s = IDLE_S if clip_s else None
        self._writing = threading.Lock()
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

    def add_picture(self, source: str, time_s: float, picture: bytes) -> None:
        """Add a picture to the clips of a source, and write those that are complete."""
        if self._clips:
            self._write_clips(self._clips.add(source, time_s, picture))

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, at most for this long, and end. Clips end with what they have."""
        super().close(timeout_s)
        if self._clips:
            self._write_clips(self._clips.end())

    def _deliver(self, event: Event, picture: bytes | None) -> None:
        stem = _stem(event)
        files = {f"{stem}.jpg": picture} if picture else {}
        files[f"{stem}.json"] = to_json(event, self._context) + b"\n"
        self._write(files, "an event")
        if self._clips and self._context.sources.get(event.source) == "picture":
            self._write_clips(self._clips.begin(event))

    def _on_idle(self) -> None:
        if self._clips:
            self._write_clips(self._clips.overdue())

    def _write_clips(self, complete: list[clips.Clip]) -> None:
        for clip in complete:
            try:
                if film := clip.film():
                    self._write({f"{_stem(clip.event)}.avi": film}, "a clip")
            except (OSError, ValueError) as error:
                with self._changed:
                    self._failed += 1
                    self._problem = getattr(error, "strerror", None) or str(error)

    def _write(self, files: dict[str, bytes], what: str) -> None:
        size = sum(map(len, files.values()))
        if size > self._max_bytes:
            raise ValueError(f"sink {self.name}: {what} has {size} bytes, more than max_bytes; increase it")
        with self._writing:
            self._make_space(size)
            make_folder(self._folder)
            for name, data in files.items():
                write_atomically(os.path.join(self._folder, name), data)
                self._files.append((name, len(data)))
                self._bytes += len(data)

    def _make_space(self, size: int) -> None:
        while self._files and self._bytes + size > self._max_bytes:
            name, freed = self._files.popleft()
            remove_quietly(os.path.join(self._folder, name))
            self._bytes -= freed


def _stem(event: Event) -> str:
    return f"{_time_text(event.time_s)}-{_identifier(event.id)}"


def _time_text(time_s: float) -> str:
    """Return a time in UTC, so that the names are in the order of the events."""
    whole = int(time_s)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole)) + f".{int(1000 * (time_s - whole)):03d}Z"


def _identifier(name: str) -> str:
    """Return an id as a part of a file name, still unique."""
    plain = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:100]
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"
