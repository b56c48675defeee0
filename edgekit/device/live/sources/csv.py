"""Rows of a CSV file with a header, or of CSV lines on standard input: `csv:rows.csv#rows=50`, `csv:-`.

With `rows`, a file is played at so many rows a second. Otherwise each sample of it waits until it is taken.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.device.live.sources import address, rows, sound
from edgekit.runner.errors import InputError
from edgekit.runner.streaming import rows as lines

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("csv",)
STDIN = ("", "-")


class CsvSource(rows.RowSource):
    """Samples from CSV lines."""

    reconnects = False

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        self._rows_s = address.number("rows")
        super().__init__(address, options, raw)

    def waits(self) -> bool:
        target = 0 if self.address.rest in STDIN else self.address.rest
        is_file = stat.S_ISREG(os.stat(target).st_mode)
        return (is_file and not self._rows_s) or super().waits()

    def _connect(self) -> Iterator[np.ndarray]:
        samples, due_s = rows.RowSamples(self.raw, self.options.hop), time.monotonic()
        for part in self._rows():
            if not self._rows_s or not self.options.realtime:
                yield from samples.push(part)
                continue
            for row in part:
                if self._closed.wait(max(0.0, due_s - time.monotonic())):
                    return
                due_s += 1 / self._rows_s
                yield from samples.push(row[None])

    def _rows(self) -> Iterator[np.ndarray]:
        path = self.address.rest
        while True:
            decoder = lines.CsvDecoder(self.raw.columns or ())
            descriptor = 0 if path in STDIN else os.open(path, os.O_RDONLY)
            try:
                for data in sound.read(descriptor, self._closed):
                    self._ready.set()
                    yield from decoder.push(data)
                if not self._closed.is_set():
                    yield from decoder.finish()
            finally:
                if descriptor:
                    os.close(descriptor)
            if not self.options.loop or path in STDIN or self._closed.is_set():
                return


def open(text: str, options: SourceOptions, raw: RawSpec) -> CsvSource:
    """Return the source for a file. Raises InputError if it is not there or the bundle takes no rows from CSV."""
    parsed = address.parse(text, options, ("rows",))
    if parsed.rest not in STDIN and not os.access(parsed.rest, os.R_OK):
        raise InputError(f"{parsed.shown}: no such file that can be read; check the path and its permissions")
    if parsed.rest in STDIN and os.isatty(0):
        raise InputError(f"{parsed.shown}: nothing is piped in; e.g. tail -f rows.csv | edgerun …")
    if raw.kind in ("window", "vector"):
        lines.check(lines.CSV, raw)
    return CsvSource(parsed, options, raw)
