"""The journal of a study, trials.jsonl: one line for what was asked, for each finished trial, for each whole batch.

Lines are appended and made durable one by one. So a study that was killed goes on from its last whole line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.core.errors import NO_RESOURCES, ResourceError, TrustError
from edgekit.core.hashing import canonical
from edgekit.runner.errors import bounded_recursion
from edgekit.runner.files import make_folder, sync_folder

FILE = "trials.jsonl"


class Journal:
    """The journal in a folder. Opening it drops a last line that a kill tore."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with writing(self.path):
            make_folder(folder)
            if not self.path.exists():
                self.path.touch()
                sync_folder(folder)
            self._length = _whole(self.path)
            if self._length < self.path.stat().st_size:
                os.truncate(self.path, self._length)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line and make it durable; ResourceError where that fails, and then the line is not there."""
        data = canonical(dict(line)) + b"\n"
        with writing(self.path):
            try:
                with open(self.path, "ab") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            except OSError:
                os.truncate(self.path, self._length)
                raise
        self._length += len(data)

    def lines(self) -> list[dict[str, Any]]:
        """Every line, in order; TrustError where one in the middle is none."""
        return list(self._lines())

    def _lines(self) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(self.path.read_bytes().splitlines(), 1):
            line = _parsed(text)
            if line is None:
                raise TrustError(
                    f"{self.path}: line {number} is broken, and others follow; restore the file, or remove its folder"
                )
            yield line


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    while end and _parsed(data[data.rfind(b"\n", 0, end - 1) + 1 : end]) is None:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if _parsed(data[data.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]) is None and begin:
            return end  # two broken lines are no kill's work: `lines` says so
        end = begin
    return end


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        with bounded_recursion():
            found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """ResourceError in one line where a file cannot be written because of the disk or of permissions."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_RESOURCES:
            raise
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror}); what it held is still there: make room, and run the same "
            "command again"
        ) from None
