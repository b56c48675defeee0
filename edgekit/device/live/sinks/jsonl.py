"""JSON lines: each event is a line in a file, which is rotated at a size, or on standard output (`-`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.live.sinks.base import SinkContext, ThreadSink, check_folder, count_option, to_json
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError

SCHEMES = ("jsonl",)
OPTIONS = ("max_bytes", "keep")
"""The size at which the file is renamed to FILE.1, and how many of those are kept."""
MAX_BYTES = 10_000_000
KEEP = 4


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Jsonl:
    """Return the sink for `jsonl:FILE`, `FILE.jsonl` or `-`."""
    path = address[len("jsonl:") :] if address.startswith("jsonl:") else address
    if not path:
        raise InputError("sink jsonl: the file is missing; use jsonl:FILE, or jsonl:- for standard output")
    where = f"sink jsonl:{path}"
    return Jsonl(
        path, context, count_option(options, "max_bytes", MAX_BYTES, where), count_option(options, "keep", KEEP, where)
    )


class Jsonl(ThreadSink):
    """Appends events to a file. A line that a killed process left half is ended before the next event."""

    def __init__(self, path: str, context: SinkContext, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        super().__init__(f"jsonl:{path}")
        self._path = None if path == "-" else Path(path)
        self._context, self._max_bytes, self._keep = context, max_bytes, keep

    def check(self) -> None:
        """Raise InputError if the file cannot be written."""
        if self._path is None:
            return
        check_folder(self._path.absolute().parent, self.name)
        if self._path.is_dir() or (self._path.exists() and not os.access(self._path, os.W_OK)):
            why = "is a folder" if self._path.is_dir() else "this user may not write to it"
            raise InputError(f"sink {self.name}: {why}; name another file")

    def _deliver(self, event: Event, picture: bytes | None) -> None:
        line = to_json(event, self._context) + b"\n"
        if self._path is None:
            sys.stdout.write(line.decode())
            sys.stdout.flush()
            return
        with self._path.open("ab+") as stream:
            size = stream.tell()
            if size:
                stream.seek(size - 1)
                line = line if stream.read(1) == b"\n" else b"\n" + line
            if not size or size + len(line) <= self._max_bytes:
                stream.write(line)
                return
        self._rotate()
        self._path.write_bytes(line.lstrip(b"\n"))

    def _rotate(self) -> None:
        """Rename FILE to FILE.1, FILE.1 to FILE.2, and so on; the last is overwritten."""
        assert self._path is not None
        for number in range(self._keep, 0, -1):
            source = self._numbered(number - 1)
            if source.exists():
                os.replace(source, self._numbered(number))

    def _numbered(self, number: int) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
