"""Measure the time of each operator of a converted model by the profiler of its interpreter.

The module `profile` of each target has `rows(folder, files, x, calls)`, which returns a row for each executed operator
with its kind, its unique name and its milliseconds for each call. Profilers take time themselves, so the times should
be read as shares.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core import subprocesses
from edgekit.core.errors import ConversionError, EdgekitError
from edgekit.targets.jobs import ConvertedFiles

if TYPE_CHECKING:
    from edgekit.core.schema.profile import Operator, OperatorTime

QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
REPEATS = 5
"""Number of measurements; the time of each operator is their median."""


def measure(
    target: str, folder: Path, files: ConvertedFiles, x: np.ndarray, calls: int, timeout_s: float
) -> list[Operator]:
    """Measure the operators in a child process; return a row for each kind of operator, the slowest first.

    A row has the kind, its calls for each inference, its own time in ms for each inference, and its share. `x` is
    (1, ...) float32 in the layout of the file's input. Raises ConversionError if the process fails.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-operators-") as scratch:
        home = Path(scratch)
        np.save(home / "x.npy", x, allow_pickle=False)
        job = {"target": target, "folder": str(folder), "files": files.to_json(), "x": str(home / "x.npy")}
        try:
            rows = subprocesses.call(f"{__name__}:measure_repeats", {**job, "calls": calls}, home, timeout_s, QUIET)
        except EdgekitError as error:
            cause = str(error)
        except subprocesses.ChildDied as died:
            time_limit_cause = f"not finished after {timeout_s:g} s; raise this stage's timeout_s"
            cause = time_limit_cause if died.ended.timed_out else died.ended.describe("its interpreter")
        else:
            return by_kind(rows)
    raise ConversionError(f"{target}: its operators cannot be timed: {cause}")


def measure_repeats(target: str, folder: str, files: dict[str, Any], x: str, calls: int) -> list[OperatorTime]:
    """Measure each operator several times and return the medians; runs in the child, and `x` is the path of a file."""
    profile = importlib.import_module(f"edgekit.targets.{target}.profile")
    samples = np.load(x, allow_pickle=False)
    converted, count = ConvertedFiles.from_json(files), max(1, calls // REPEATS)
    return merge_repeats([profile.rows(Path(folder), converted, samples, count) for _ in range(REPEATS)])


def merge_repeats(repeats: Sequence[Iterable[OperatorTime]]) -> list[OperatorTime]:
    """Return every operator of any repeat with the median of its times; a repeat that lacks it counts as 0.

    Operators near the resolution of the profiler's clock appear in some repeats only.
    """
    kinds: dict[str, str] = {}
    spent: dict[str, list[float]] = {}
    for index, rows in enumerate(repeats):
        for row in rows:
            kinds[row["name"]] = row["operator"]
            spent.setdefault(row["name"], [0.0] * len(repeats))[index] = row["self_ms"]
    return [{"operator": kinds[name], "name": name, "self_ms": median(times)} for name, times in spent.items()]


def by_kind(rows: Iterable[OperatorTime]) -> list[Operator]:
    """Sum the times by kind of operator, with the share of each kind; the slowest first."""
    times_by_kind: dict[str, list[float]] = {}
    for row in rows:
        times_by_kind.setdefault(row["operator"], []).append(row["self_ms"])
    total_ms = sum(map(sum, times_by_kind.values())) or 1.0
    kinds: list[Operator] = [
        {"operator": kind, "calls": len(times), "self_ms": sum(times), "share": sum(times) / total_ms}
        for kind, times in times_by_kind.items()
    ]
    return sorted(kinds, key=lambda row: (-row["self_ms"], row["operator"]))
