"""Sensor recordings as .csv in a folder or a zip, laid out as split/class/*.csv, cut into windows (time, channels).

A file is one recording: a header row, then a row for each moment, in the form that `edgekit.runner.inputs.table` reads.
A window has `window` rows, and the next one begins `stride` rows later. Rows at the end of a recording that do not fill
a window are dropped, and a recording shorter than one window is skipped; notes report both. The windows of a recording
stay in one split, because they are similar and may overlap. All windows are in memory, and each takes 3 kB for 128
rows of six channels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, existing_path, file_stamps
from edgekit.data import tables
from edgekit.data.types import Pools, ProgressCallback, SourceConfig
from edgekit.runner import input_path

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data.archives import FolderArchive, ZipArchive
    from edgekit.data.types import Split
    from edgekit.runner.inputs.table import Table

TASKS = ("classification", "embedding", "anomaly")
_SHOWN = 10
_APART = 1 << 40
"""Distance in rows between the starts of two recordings, which is more than any recording has."""


class CsvWindowsConfig(SourceConfig):
    """Options of a folder of recordings."""

    source: Literal["csv_windows"] = "csv_windows"
    path: PathText = Field(description="folder or .zip with recordings as SPLIT/CLASS/*.csv")
    window: int = Field(ge=2, le=1_000_000, description="rows in a window; a sample has the shape (window, columns)")
    stride: int | None = Field(
        None, ge=1, description="rows from the start of a window to the start of the next; none: window"
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="columns to use as channels, in this order; none: all that hold numbers"
    )

    @field_validator("columns")
    @classmethod
    def _different(cls, columns: list[str] | None) -> list[str] | None:
        if columns and (len(set(columns)) < len(columns) or not all(columns)):
            raise ValueError(f"got {columns}; name each column once")
        return columns

    @property
    def raw_shape(self) -> tuple[int, ...] | None:
        """(rows, columns), if the config names the columns."""
        return (self.window, len(self.columns)) if self.columns else None

    @property
    def windows(self) -> dict[str, Any]:
        """The step that cuts a recording into windows, as on the device."""
        return input_path.windows_step(self.window, self.stride or self.window)


def identity(config: CsvWindowsConfig) -> list[object]:
    """Return the stamps of the zip or of every file of the folder."""
    return [digest(file_stamps(existing_path(config.path, "data.path")))]


def read(config: CsvWindowsConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of (n, window, columns) float32 with the number of each window's recording."""
    from edgekit.data import archives, folder_layout

    path = existing_path(config.path, "data.path")
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        layout = folder_layout.parse_layout(source.listing, path.name, folder_layout.RECORDINGS)
        names = sorted(name for split_names in layout.names.values() for name in split_names)
        cutter = _Cutter(config, source, names)
        splits, done = {}, 0
        for split, split_names in layout.names.items():
            recordings = []
            for name in split_names:
                recordings.append(cutter.windows(name))
                done += 1
                if progress:
                    progress(done, len(names))
            _check_classes(split, recordings, layout.labels[split], layout.classes, cutter)
            splits[split] = _mixed(recordings, layout.labels[split], done - len(split_names), config.windows["stride"])
    three_splits = (splits["train"], splits.get("validation"), splits.get("test"))
    notes = (*layout.notes, *cutter.notes())
    steps = ({"step": "decode_csv"}, config.windows)
    return Pools(*three_splits, layout.classes, "window", notes, columns=tuple(cutter.columns), input_path=steps)


class _Cutter:
    """Opens recordings, cuts them into windows, and collects notes."""

    def __init__(self, config: CsvWindowsConfig, source: FolderArchive | ZipArchive, names: list[str]) -> None:
        import numpy as np

        self._config, self._source = config, source
        self._header: tuple[str, ...] = ()
        self._texts: list[str] = []
        self.columns = config.columns or self._numeric(names)
        self._rising = np.ones(len(self.columns), bool)
        self._rows = self._cut = self.longest = 0
        self._short: list[str] = []

    def windows(self, name: str) -> np.ndarray:
        """Return a recording's windows (n, window, columns) float32, a view of its rows. n is 0 if it is too short."""
        import numpy as np

        from edgekit.runner.inputs import windows

        table = self._table(name)
        if self._header and table.header != self._header:
            raise DataError(
                f"{name}: its header is {', '.join(map(repr, table.header))}, the first recording's "
                f"{', '.join(map(repr, self._header))}; give all recordings the same header, or list the columns "
                f"that all have in data.columns"
            )
        values = tables.float_columns(table, self.columns)
        self.longest = max(self.longest, len(values))
        step = self._config.windows
        if not windows.window_count(len(values), step):
            self._short.append(f"{name} ({len(values)} rows)")
            return np.zeros((0, self._config.window, len(self.columns)), np.float32)
        self._rising &= (np.diff(values, axis=0) > 0).all(axis=0)
        self._rows += len(values)
        self._cut += (len(values) - step["length"]) % step["stride"]
        return windows.stack_windows(values, step)

    def notes(self) -> list[str]:
        """Return notes on the channels, the skipped columns and the skipped rows."""
        notes = []
        if not self._config.columns:
            skipped = f"; skipped, because they hold no numbers: {', '.join(self._texts)}" if self._texts else ""
            notes.append(f"channels: {', '.join(self.columns)}{skipped}")
            if times := [name for name, rises in zip(self.columns, self._rising, strict=True) if rises]:
                notes.append(
                    f"{', '.join(times)}: rises from row to row of every recording like a time or a row number "
                    "and is useless for a network; name the other columns in data.columns"
                )
        if self._short:
            more = f" and {len(self._short) - _SHOWN} more" if len(self._short) > _SHOWN else ""
            notes.append(
                f"skipped {len(self._short)} recordings shorter than data.window, {self._config.window} rows: "
                f"{', '.join(self._short[:_SHOWN])}{more}"
            )
        if self._cut:
            notes.append(f"{self._cut} of {self._rows} rows at the ends of recordings are in no window")
        return notes

    def _numeric(self, names: list[str]) -> list[str]:
        """Return the columns that hold a number in any row of the first recording that has rows.

        All other recordings must have the same header.
        """
        first = next((table for table in map(self._table, names) if table.rows), None)
        if first is None:
            raise DataError("no recording has rows after its header; export them again")
        self._header = first.header
        columns, self._texts = tables.number_columns(first)
        if not columns:
            raise DataError(f"{first.name}: no named column holds a number; write decimals with a point")
        return columns

    def _table(self, name: str) -> Table:
        return tables.read_table(name, partial(self._source.read, name), "divide the recording")


def _mixed(recordings: list[np.ndarray], labels: np.ndarray, first: int, stride: int) -> Split:
    """Return all windows in a fixed random order, so that any prefix is representative.

    Recordings are numbered from `first`. Their temporal order is not known, so they are assumed to follow one another
    in the order of the layout.
    """
    import numpy as np

    from edgekit.data.types import Split

    counts = [len(windows) for windows in recordings]
    order = np.random.default_rng(0).permutation(sum(counts))
    x = np.empty((sum(counts), *recordings[0].shape[1:]), np.float32)
    start = 0
    for windows in recordings:
        x[order[start : start + len(windows)]] = windows
        start += len(windows)
    y, groups = np.empty_like(order), np.empty_like(order)
    y[order] = np.repeat(labels, counts)
    groups[order] = np.repeat(np.arange(first, first + len(counts)), counts)
    starts = np.empty_like(order)
    starts[order] = np.concatenate([_APART * at + stride * np.arange(n) for at, n in enumerate(counts, first)])
    return Split(x, y, groups, starts)


def _check_classes(
    split: str, recordings: list[np.ndarray], labels: np.ndarray, classes: tuple[str, ...], cutter: _Cutter
) -> None:
    """Raise DataError if all recordings of a class are shorter than a window."""
    for label in sorted(set(labels.tolist())):
        if not sum(
            len(windows) for windows, window_label in zip(recordings, labels, strict=True) if window_label == label
        ):
            raise DataError(
                f"{split}/{classes[label]}: every recording is shorter than data.window; lower it (the longest "
                f"recording read so far has {cutter.longest} rows), or record for longer"
            )
