"""A metrics file for the textfile collector of Prometheus's node-exporter, rewritten every few seconds.

A thread writes it, so no answer ever waits for a disk. A reader sees the previous file or the new one, never half of
one. If several processes write the same file, the last one wins.
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
"""How long closing waits for a disk that hangs."""
_NUMBERS = itertools.count()


class Textfile:
    """Writes what `page` returns, every few seconds until it is closed, and then once more.

    Raises InputError if the folder is missing.
    """

    def __init__(
        self, path: Path, page: Callable[[], bytes], every_s: float, on_problem: Callable[[str], object]
    ) -> None:
        if not path.parent.is_dir() or path.is_dir():
            why = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise InputError(f"metrics: {why}; use a file in a folder that the textfile collector reads")
        self.where = str(path)
        self._path, self._page, self._every_s, self._on_problem = path.absolute(), page, every_s, on_problem
        # `write_atomically` is not used, because it syncs each write, which would wear out flash cards. The name of the
        # temporary file contains a number, because a process may write several files.
        name = f".{zlib.crc32(os.fsencode(path.name)):08x}.{os.getpid()}.{next(_NUMBERS)}.tmp"
        self._temporary = self._path.with_name(name)
        self._failing = False
        self._ending = Event()
        self._thread = Thread(target=self._run, name="edgerun metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last values and end. If the disk hangs, this does not wait for it."""
        self._ending.set()
        with suppress(RuntimeError):  # called by the thread itself during garbage collection
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            self._write()
            is_ending = self._ending.wait(self._every_s)
        self._write()

    def _write(self) -> None:
        """Write the file. After a reported failure, further ones are not reported until a write succeeds."""
        try:
            try:
                self._temporary.write_bytes(self._page())
                os.replace(self._temporary, self._path)
            finally:
                with suppress(OSError):
                    self._temporary.unlink()
            self._failing = False
        except Exception as error:  # inference must go on, and the next write may succeed
            was_failing, self._failing = self._failing, True
            if not was_failing:
                why = getattr(error, "strerror", None) or error
                with suppress(Exception):  # the program may turn warnings into errors
                    self._on_problem(f"metrics: {self._path} cannot be written ({why}); trying again later")
