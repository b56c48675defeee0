"""alibi-detect and evidently, in an environment of their own: both bring other versions of packages than the workbook.

`make drift` makes build/drift. What they are asked travels as a file, and `worker.py` answers there.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.drift.detectors import Alarm
from benchmarks.drift.pools import Stream

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / "build" / "drift" / "bin" / "python"
LONGEST_S = 3600


class NotThere(Exception):
    """The environment of the peers is missing or fails."""


@dataclass(frozen=True)
class Test:
    """A test of windows: `kind` is "ks" or "mmd" (alibi-detect) or "evidently", a level the p-value of an alarm.

    Of each level there are alarms; evidently has one, the share of columns that drifted, which is its own measure.
    """

    kind: str
    window: int
    levels: tuple[float, ...]


@dataclass(frozen=True)
class Asked:
    """A stream, and the number of the reference that it is held against."""

    stream: Stream
    reference: int


def alarms(
    test: Test, references: Sequence[np.ndarray], names: Sequence[str], asked: Sequence[Asked]
) -> list[list[list[Alarm]]]:
    """For each level, and each stream, its alarms at the ends of windows that follow one another from the begin.

    Of a stream with a drift, the first window is the one in which the drift begins.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "asked.npz"
        tables = {f"s{number}": each.stream.table().astype(np.float32) for number, each in enumerate(asked)}
        known = {f"r{number}": each for number, each in enumerate(references)}
        onsets = [each.stream.onset for each in asked]
        np.savez(path, onsets=onsets, of=[each.reference for each in asked], **tables, **known)
        words = [str(PYTHON), str(Path(__file__).parent / "worker.py"), str(path), test.kind, str(test.window),
                 json.dumps(test.levels), json.dumps(list(names))]  # fmt: skip
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotThere(f"{PYTHON}: {error}; `make drift` makes it") from None
        if done.returncode:
            raise NotThere(f"{test.kind} ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        said = json.loads(done.stdout.splitlines()[-1])
    return [[[Alarm(at, by) for at, by in each] for each in level] for level in said]
