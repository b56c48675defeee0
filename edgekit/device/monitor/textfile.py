"""A file of metrics for the textfile collector of Prometheus's node-exporter, written anew every few seconds.

A thread writes it, so no answer ever waits for a disk. A reader finds the file before or the one after, never half of
one. Of several that write one file, the last one wins.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from edgekit.runner.errors import InputError

CLOSE_TIMEOUT_S = 5.0
"""How long the end waits for a disk that hangs."""
_NUMBERS = itertools.count()


class Textfile:
    """Writes what `page` gives until it is closed, and then once more; InputError where there is no such folder."""

    def __init__(
        self, path: Path, page: Callable[[], bytes], every_s: float, on_problem: Callable[[str], object]
    ) -> None:
        if not path.parent.is_dir() or path.is_dir():
            why = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise InputError(f"metrics: {why}; use a file in one that the textfile collector reads")
        self.where = str(path)
        self._path, self._page, self._every_s, self._on_problem = path.absolute(), page, every_s, on_problem
        # files.write_atomically makes each write durable, which wears flash cards out; and a process may have several
        name = f".{zlib.crc32(os.fsencode(path.name)):08x}.{os.getpid()}.{next(_NUMBERS)}.tmp"
        self._temporary = self._path.with_name(name)
        self._failing = False
        self._ending = Event()
        self._thread = Thread(target=self._run, name="edgerun metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last figures and end; a disk that hangs is left behind."""
        self._ending.set()
        with suppress(RuntimeError):  # called by the thread itself, which collects garbage as all do
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            self._write()
            ended = self._ending.wait(self._every_s)
        self._write()

    def _write(self) -> None:
        """One warning for a disk that is full or gone, until it works again."""
        try:
            try:
                self._temporary.write_bytes(self._page())
                os.replace(self._temporary, self._path)
            finally:
                with suppress(OSError):
                    self._temporary.unlink()
            self._failing = False
        except Exception as error:  # whatever it is, inference goes on, and this tries again
            before, self._failing = self._failing, True
            if not before:
                why = getattr(error, "strerror", None) or error
                with suppress(Exception):  # a warning may be an error here
                    self._on_problem(f"metrics: {self._path} is not written ({why}); it is tried again meanwhile")
