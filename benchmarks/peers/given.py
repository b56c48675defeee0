"""What a worker is given, and how it answers. It runs in a peer's environment: the standard library and numpy alone.

`python -P -m benchmarks.peers.workers.NAME SUBJECT OUT SECONDS` writes files into OUT, and found.json: a row for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

MODEL, TFLITE, SAMPLES, FOUND = "model.onnx", "model.tflite", "samples.npz", "found.json"
LONGEST_WORD = 300


@dataclass(frozen=True)
class Given:
    """The folder of the subject (see `subject.py`), the folder for files, and how long a search may take."""

    subject: Path
    out: Path
    seconds: int

    @property
    def model(self) -> Path:
        """The baseline as ONNX, float, at an open batch."""
        return self.subject / MODEL

    @property
    def tflite(self) -> Path:
        """The baseline as TFLite, float; FileNotFoundError where the run has none."""
        path = self.subject / TFLITE
        if not path.is_file():
            raise FileNotFoundError("the run has no baseline-fp32-tflite; run it with the target tflite")
        return path

    @cached_property
    def samples(self) -> np.ndarray:
        """The calibration samples (n, …), float32, images channels first."""
        with np.load(self.subject / SAMPLES) as file:
            return np.ascontiguousarray(file["calibration"])

    def samples_for(self, sides: Sequence[int]) -> np.ndarray:
        """The same as an input of those sides takes them, which leaves out the batch: as they are or channels last."""
        wanted = tuple(sides)
        for x in (self.samples, np.moveaxis(self.samples, 1, -1)):
            if x.shape[1:] == wanted:
                return np.ascontiguousarray(x)
        raise ValueError(f"the file takes {wanted}, samples are {self.samples.shape[1:]}")


def made(given: Given, name: str, how: str, build: Callable[[Path], object]) -> dict[str, Any]:
    """The row of one file: seconds that `build` took to write it; where it failed, why not. Others go on."""
    path, began = given.out / name, time.perf_counter()
    try:
        build(path)
        if not path.is_file():
            raise FileNotFoundError("wrote no file")
    except Exception as error:
        return {"file": name, "how": how, "failed": in_a_line(error)}
    return {"file": name, "how": how, "seconds": time.perf_counter() - began}


def in_a_line(error: Exception) -> str:
    """Its kind and its first words."""
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), "no word")
    return f"{type(error).__name__}: {words}"[:LONGEST_WORD]


def answer(work: Callable[[Given], list[dict[str, Any]]]) -> None:
    """Run a worker on the words of the command line."""
    subject, out, seconds = sys.argv[1:]
    given = Given(Path(subject), Path(out), int(seconds))
    (given.out / FOUND).write_text(json.dumps(work(given), indent=1))
