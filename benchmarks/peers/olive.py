"""Olive's own search over the quantization of an ONNX file: every option that it searches by default."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import NotRun, python_of

PACKAGES = ("olive-ai==0.13.0", "onnxruntime==1.32.0", "onnx", "requests", "pandas")
FIRST = ("torch==2.13.0",)
WORKER = Path(__file__).with_name("olive_worker.py")
SLACK_S = 600
"""Beyond the search's own limit: its last trial, and importing."""


@dataclass(frozen=True)
class File:
    """A file that Olive found, and what Olive measured of it: `accuracy` on validation, `p50_ms` on one thread."""

    path: Path
    options: dict[str, Any]
    accuracy: float
    p50_ms: float

    @property
    def bytes(self) -> int:
        """On disk."""
        return self.path.stat().st_size

    def beats(self, other: File) -> bool:
        """Whether it is at least as good in all three figures, and better in one."""
        mine = (-self.accuracy, self.p50_ms, self.bytes)
        theirs = (-other.accuracy, other.p50_ms, other.bytes)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def search(folder: Path, seconds: int, environment: Path) -> list[File]:
    """All files that a search of so many seconds made of the subject in `folder`; NotRun where Olive fails."""
    python = python_of(environment, PACKAGES, first=FIRST)
    words = [str(python), "-P", str(WORKER), str(folder), str(seconds)]  # -P: else `olive` is this file
    log = folder / "olive.log"
    quiet = {**os.environ, "OLIVE_DISABLE_TELEMETRY": "1", "PYTHONPATH": ""}
    with log.open("w") as said:
        try:
            done = subprocess.run(words, stdout=said, stderr=said, timeout=seconds + SLACK_S, env=quiet)
        except subprocess.TimeoutExpired:
            raise NotRun(f"olive: took longer than {seconds + SLACK_S} s; {log} has its words") from None
    if done.returncode:
        raise NotRun(f"olive: ended with exit code {done.returncode}; {log} has its words")
    rows = json.loads((folder / "found.json").read_text())
    if not rows:
        raise NotRun(f"olive: measured no file in {seconds} s; search longer, {log} has its words")
    return [File(Path(row["path"]), row["options"], row["accuracy"], row["p50_ms"]) for row in rows]


def front(files: list[File]) -> list[File]:
    """Those that no other beats, the most accurate first."""
    kept = [one for one in files if not any(other.beats(one) for other in files)]
    return sorted(kept, key=lambda one: (-one.accuracy, one.p50_ms, one.bytes))
