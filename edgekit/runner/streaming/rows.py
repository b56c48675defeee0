"""Rows of sensors out of a stream: rows of float32 or int16, arrays, or lines of CSV (`csv_lines.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.streaming.csv_lines import NAME, Lines

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.streaming.source import Source

CSV = "csv"
CODINGS = {"f32le": "<f4", "FLOAT_LE": "<f4", "s16le": "<i2", "S16_LE": "<i2"}
FORMATS = (CSV, *CODINGS)


def parts(source: Source, format: str | None, raw: RawSpec) -> Iterator[np.ndarray]:
    """Rows (rows, channels) float32 in parts; InputError at last where they end in the middle, or are no rows."""
    coding = CODINGS.get(format or "", "<f4")
    decoder: Lines | Binary = Lines(raw.columns or ()) if format == CSV else Binary(raw.shape[1], coding)
    for part in source:
        if isinstance(part, np.ndarray):
            yield _of_array(part, raw)
        elif format is None:
            raise InputError(f"{NAME}: bytes came; name their format: {', '.join(FORMATS)}")
        else:
            yield from decoder.push(part)
    if format is not None:
        yield from decoder.finish()


def check(format: str | None, raw: RawSpec) -> None:
    """InputError where the bundle's windows do not come in this format."""
    if format is not None and format not in FORMATS:
        raise InputError(f"format: got {str(format)[:40]!r}; rows of sensors are {', '.join(FORMATS)}")
    if raw.dtype != "float32":
        raise InputError(f"{NAME}: the bundle takes windows of {raw.dtype}; only float32 ones can be streamed")
    if format == CSV and (not raw.columns or not input_path.find(raw.steps, "decode_csv")):
        raise InputError(f"{NAME}: the bundle names no columns; send float32 rows: --stream f32le, or int16 ones")


class Binary:
    """Rows of numbers, little-endian, one for each channel in the bundle's order; integers are taken as they are."""

    def __init__(self, channels: int, coding: str) -> None:
        self._coding = np.dtype(coding)
        self._channels, self._row_bytes = channels, self._coding.itemsize * channels
        self._rest = b""
        self._rows = 0

    def push(self, data: bytes) -> Iterator[np.ndarray]:
        """The whole rows by now."""
        data = self._rest + data
        whole = len(data) // self._row_bytes * self._row_bytes
        self._rest = data[whole:]
        self._rows += whole // self._row_bytes
        yield np.frombuffer(data[:whole], self._coding).astype(np.float32, copy=False).reshape(-1, self._channels)

    def finish(self) -> Iterator[np.ndarray]:
        """InputError where a row is cut."""
        if self._rest:
            raise InputError(
                f"{NAME} ended in the middle of a row, after {self._rows} rows: {len(self._rest)} of its "
                f"{self._row_bytes} bytes are there; the bundle takes {self._channels} values a row"
            )
        return iter(())


def _of_array(x: np.ndarray, raw: RawSpec) -> np.ndarray:
    channels = raw.shape[1]
    if x.dtype not in (np.float32, np.int16) or x.ndim not in (1, 2) or x.shape[-1] != channels:
        raise InputError(
            f"source: got an array of {x.dtype}{list(x.shape)}; rows are float32 or int16 of ({channels},) or (rows, "
            f"{channels})"
        )
    return x.astype(np.float32, copy=False).reshape(-1, channels)
