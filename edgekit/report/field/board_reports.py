"""Read board reports, as `edgerun bench --report` writes them, and refuse those whose figures cannot be relied on.

Every figure is computed again from the samples. The digest shows that a file was edited, but whoever edits a file on
purpose can compute a new digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isclose
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from edgekit.core.errors import DataError
from edgekit.device.measure import bench, conditions, intervals
from edgekit.device.measure.board_report import FORMAT, KIND, digest
from edgekit.device.measure.conditions import Conditions
from edgekit.report.field.reports import MAX_BYTES, parse_json

TOLERANCE = 1e-3
"""Relative difference up to which a figure counts as the one that follows from the samples."""
WRITER = "`edgerun bench --report`"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class BundleFacts(_Part):
    """What the manifest says about the bundle."""

    name: str
    version: str
    target: str
    variant: str
    task: str


class ModelFile(_Part):
    """Size and digest of a model file."""

    bytes: PositiveInt
    sha256: str


class Machine(_Part):
    """The board, its processor and its system."""

    board: str | None
    cpu: str
    cores: PositiveInt
    memory_bytes: int | None
    machine: str
    os: str | None
    system: str
    python: str


class Selftest(_Part):
    """The result of the golden samples."""

    ok: bool
    vectors: int
    max_abs_delta: float
    atol: float


class Start(_Part):
    """A new process that opened the bundle."""

    open_ms: float = Field(gt=0)
    peak_bytes: int | None
    selftest: Selftest


class Measurement(_Part):
    """One of the two measurements of the bundle, with the time of every call."""

    sha256: str
    interpreter: str
    version: str
    threads: PositiveInt
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    low_ms: float
    high_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    samples_ns: list[PositiveInt]

    @cached_property
    def samples_ms(self) -> np.ndarray:
        """The time of each call, (calls,)."""
        return np.asarray(self.samples_ns) / 1e6


class Content(_Part):
    """The keys of a board report that are read."""

    at: str
    bundle: BundleFacts
    inputs: list[list[PositiveInt]]
    model_files: dict[str, ModelFile]
    machine: Machine
    device: str
    emulated: bool
    governor: str | None
    seen: Conditions
    disturbed: list[str]
    confidence: float = Field(ge=0.99, lt=1)
    rounds: PositiveInt
    calls_per_round: PositiveInt
    openings: int = Field(ge=bench.MIN_OPENINGS)
    rows: list[Measurement] = Field(min_length=2, max_length=2)
    starts: list[Start] = Field(min_length=1)


@dataclass(frozen=True)
class BoardReport:
    """A report that passed all checks. `name` is that of its file, and `sha256` the report's digest."""

    name: str
    sha256: str
    content: Content

    @property
    def measured(self) -> Measurement:
        """The first measurement of the bundle."""
        return self.content.rows[0]

    @property
    def p50(self) -> intervals.MedianInterval:
        """The p50 with its interval, computed from the samples."""
        return intervals.p50_interval(self.measured.samples_ms, self.content.openings, self.content.confidence)

    @property
    def open_ms(self) -> float:
        """Median time to open the bundle in a new process."""
        return median(each.open_ms for each in self.content.starts)

    @property
    def peak_bytes(self) -> int | None:
        """Largest resident memory of a process that opened the bundle and ran the golden samples."""
        return max((each.peak_bytes for each in self.content.starts if each.peak_bytes), default=None)

    @property
    def model_bytes(self) -> int:
        """Bytes of all model files."""
        return sum(each.bytes for each in self.content.model_files.values())


def read_board_report(path: Path) -> BoardReport:
    """Read and check one report. Raises `DataError` with the reason to refuse it."""
    content = _parse(path)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError(f"{path}: not a board report; give a file that {WRITER} wrote")
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path}: a board report of format {content.get('format')!r}, but this version of edgekit reads {FORMAT}; "
            "use the version of edgekit that its edgerun.pyz came from"
        )
    if content.get("digest") != digest(content):
        raise DataError(f"{path}: was edited after it was written, as its digest shows; measure again")
    try:
        report = BoardReport(path.name, content["digest"], Content.model_validate_json(json.dumps(content)))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise DataError(f"{path}: {place}: {fault['msg']}; give a file as {WRITER} wrote it") from None
    for fault_text in _faults(report.content):
        raise DataError(f"{path}: {fault_text}")
    return report


def read_folder(folder: Path) -> tuple[list[BoardReport], list[str]]:
    """Return the sound reports of a folder in the order of their file names, and the reasons to refuse the others.

    Raises `DataError` if there is no such folder, or no `.json` file in it.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder}: has no board report; {WRITER[:-1]} {folder}/BOARD.json` writes one")
    reports, refusals = [], []
    for path in paths:
        try:
            reports.append(read_board_report(path))
        except DataError as error:
            refusals.append(str(error))
    return reports, refusals


def _parse(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: has {path.stat().st_size:,} bytes; a board report has at most {MAX_BYTES:,}")
        return parse_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: not JSON; give a file that {WRITER} wrote") from None


def _faults(content: Content) -> Iterator[str]:
    """Yield the reasons to refuse a report, the plainest first."""
    if content.emulated:
        yield "measured on an emulated machine; measure on the board itself"
    for start in content.starts:
        result = start.selftest
        if not (result.ok and result.vectors > 0 and result.max_abs_delta <= result.atol):
            yield f"the golden self-test failed (difference {result.max_abs_delta:g}, allowed {result.atol:g})"
    yield from _sample_faults(content)
    yield from _figure_faults(content)
    noise = max(conditions.noise(row.samples_ms, content.openings) or 0.0 for row in content.rows)
    if not _close(noise, content.seen.noise or 0.0):
        yield f"says that its rounds spread by {content.seen.noise}, but its samples give {noise:.4g}"
    if reasons := content.disturbed or conditions.noise_reasons(content.seen):
        yield f"disturbed: {'; '.join(reasons)}; measure again while the board is idle"
    apart = _ratio(content, 0, 1)
    if not apart.low <= 1 <= apart.high:
        yield (
            f"the A/A check failed: the file took {apart.ratio:.3f} ({apart.low:.3f}–{apart.high:.3f}) times as long "
            "as itself; measure again"
        )


def _sample_faults(content: Content) -> Iterator[str]:
    first, second = content.rows
    calls = content.rounds * content.calls_per_round
    for row in content.rows:
        if len(row.samples_ns) != calls or calls % content.openings:
            yield f"has {len(row.samples_ns)} samples, but {content.rounds} rounds of {content.calls_per_round} calls"
    if any(getattr(first, name) != getattr(second, name) for name in ("sha256", "interpreter", "version", "threads")):
        yield "its two measurements are of different files or interpreters"
    if first.samples_ns == second.samples_ns:
        yield "its two measurements have the same samples, so one is a copy"
    total_s, seconds = sum(map(sum, (first.samples_ns, second.samples_ns))) / 1e9, content.seen.seconds
    if total_s > seconds:
        yield f"its samples add up to {total_s:.3g} s, but the measurement took {seconds:.3g} s"


def _figure_faults(content: Content) -> Iterator[str]:
    fastest = min((0, 1), key=lambda place: _relative(content)[place])
    for place, row in enumerate(content.rows):
        median_interval = intervals.p50_interval(row.samples_ms, content.openings, content.confidence)
        ratio = _ratio(content, place, fastest)
        computed: Mapping[str, float] = {
            **{key: value for key, value in bench.latency_summary(row.samples_ms).items() if key.startswith("p")},
            "low_ms": median_interval.low_ms,
            "high_ms": median_interval.high_ms,
            "ratio": ratio.ratio,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
        }
        for key, value in computed.items():
            if not _close(getattr(row, key), value):
                yield f"says that {key} is {getattr(row, key):g}, but its samples give {value:g}"


def _relative(content: Content) -> Sequence[float]:
    samples_ms = {str(place): row.samples_ms for place, row in enumerate(content.rows)}
    return list(intervals.relative_latencies(samples_ms, content.openings).values())


def _ratio(content: Content, place: int, to: int) -> intervals.RatioInterval:
    rows = content.rows
    return intervals.ratio_interval(rows[place].samples_ms, rows[to].samples_ms, content.openings, content.confidence)


def _close(stated: float, computed: float) -> bool:
    return isclose(stated, computed, rel_tol=TOLERANCE)
