"""Time per operator of a converted model, by its own interpreter's profiler. One target, one file.

Each file offers `rows(folder, files, x, calls)`: one row for each executed operator, with its kind, its unique name and
its milliseconds a call. Profilers cost time of their own, so what they say is read as shares.
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
"""Measurements of which each operator's median is taken."""


def measure(
    target: str, folder: Path, files: ConvertedFiles, x: np.ndarray, calls: int, timeout_s: float
) -> list[Operator]:
    """Rows of operator, calls per inference, self time in ms per inference, share; slowest first.

    `x` (1, ...) float32 in the layout of the file's input. In a process of its own: ConversionError where that fails.
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
            late = f"not finished after {timeout_s:g} s; raise this stage's timeout_s"
            cause = late if died.ended.late else died.ended.cause("its interpreter")
        else:
            return by_kind(rows)
    raise ConversionError(f"{target}: its operators cannot be timed: {cause}")


def measure_repeats(target: str, folder: str, files: dict[str, Any], x: str, calls: int) -> list[OperatorTime]:
    """In the process: each operator with the median of its time over the repeats; `x` is a file."""
    profile = importlib.import_module(f"edgekit.targets.{target}.profile")
    samples = np.load(x, allow_pickle=False)
    each = max(1, calls // REPEATS)
    return merge_repeats(
        [profile.rows(Path(folder), ConvertedFiles.from_json(files), samples, each) for _ in range(REPEATS)]
    )


def merge_repeats(repeats: Sequence[Iterable[OperatorTime]]) -> list[OperatorTime]:
    """Every operator that any repeat has, with the median of its time over all; 0 where a repeat does not have it.

    An operator near the resolution of its profiler's clock is in some repeats and not in others.
    """
    kinds: dict[str, str] = {}
    spent: dict[str, list[float]] = {}
    for place, rows in enumerate(repeats):
        for row in rows:
            kinds[row["name"]] = row["operator"]
            spent.setdefault(row["name"], [0.0] * len(repeats))[place] = row["self_ms"]
    return [{"operator": kinds[name], "name": name, "self_ms": median(times)} for name, times in spent.items()]


def by_kind(rows: Iterable[OperatorTime]) -> list[Operator]:
    """Operators of one kind together, with their share of the whole; slowest first."""
    whole: dict[str, list[float]] = {}
    for row in rows:
        whole.setdefault(row["operator"], []).append(row["self_ms"])
    total_ms = sum(map(sum, whole.values())) or 1.0
    found: list[Operator] = [
        {"operator": kind, "calls": len(times), "self_ms": sum(times), "share": sum(times) / total_ms}
        for kind, times in whole.items()
    ]
    return sorted(found, key=lambda row: (-row["self_ms"], row["operator"]))
