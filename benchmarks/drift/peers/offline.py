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
LONGEST_S = 900


class NotThere(Exception):
    """The environment of the peers is missing or fails."""


@dataclass(frozen=True)
class Test:
    """A test of windows: `kind` is "ks" or "mmd" (alibi-detect) or "evidently", `level` the p-value of an alarm.

    For evidently, `level` is the share of drifted columns, which is its own measure.
    """

    kind: str
    window: int
    level: float


def alarms(test: Test, reference: np.ndarray, names: Sequence[str], streams: Sequence[Stream]) -> list[list[Alarm]]:
    """For each stream its alarms, at the ends of windows that follow one another from the stream's begin."""
    tables = [stream.table().astype(np.float32) for stream in streams]
    onsets = [stream.onset for stream in streams]
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.npz"
        np.savez(asked, reference=reference, onsets=onsets, **{f"s{n}": table for n, table in enumerate(tables)})
        words = [str(PYTHON), str(Path(__file__).parent / "worker.py"), str(asked), test.kind, str(test.window),
                 str(test.level), json.dumps(list(names))]  # fmt: skip
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S)
        except OSError as error:
            raise NotThere(f"{PYTHON}: {error}; `make drift` makes it") from None
        if done.returncode:
            raise NotThere(f"{test.kind} ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        said = json.loads(done.stdout.splitlines()[-1])
    return [[Alarm(at, by) for at, by in each] for each in said]
