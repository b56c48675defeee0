"""The input of a worker, and the form of its answer.

The command `python -P -m benchmarks.peers.workers.NAME SUBJECT OUT SECONDS` writes files into OUT, and found.json with
a row for each file. This module runs in a toolkit's environment, so it uses only the standard library and NumPy.
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

MODEL, TFLITE, SAMPLES, ROWS_FILE = "model.onnx", "model.tflite", "samples.npz", "found.json"
MAX_ERROR_LENGTH = 300


@dataclass(frozen=True)
class WorkerJob:
    """The folder of the subject (see `subject.py`), the folder for files, and how long a search may take in seconds."""

    subject: Path
    out: Path
    seconds: int

    @property
    def model(self) -> Path:
        """The baseline as a float ONNX file with an open batch."""
        return self.subject / MODEL

    @property
    def tflite(self) -> Path:
        """The baseline as a float TFLite file.

        Raises
        ------
        FileNotFoundError
            The run has none.
        """
        path = self.subject / TFLITE
        if not path.is_file():
            raise FileNotFoundError("the run has no baseline-fp32-tflite; run it with the target tflite")
        return path

    @cached_property
    def samples(self) -> np.ndarray:
        """The calibration samples (n, …) in float32, images with channels first."""
        with np.load(self.subject / SAMPLES) as file:
            return np.ascontiguousarray(file["calibration"])

    def samples_for(self, sides: Sequence[int]) -> np.ndarray:
        """Return the samples for an input of this shape without its batch: as they are, or with channels last."""
        shape = tuple(sides)
        for x in (self.samples, np.moveaxis(self.samples, 1, -1)):
            if x.shape[1:] == shape:
                return np.ascontiguousarray(x)
        raise ValueError(f"the file takes {shape}, samples are {self.samples.shape[1:]}")


def make_file(job: WorkerJob, name: str, method: str, build: Callable[[Path], object]) -> dict[str, Any]:
    """Build one file and return its row, with the seconds or, if it failed, with the error.

    The error is not raised, so that the other files are still made.
    """
    path, started = job.out / name, time.perf_counter()
    try:
        build(path)
        if not path.is_file():
            raise FileNotFoundError("wrote no file")
    except Exception as error:
        return {"file": name, "how": method, "failed": error_line(error)}
    return {"file": name, "how": method, "seconds": time.perf_counter() - started}


def error_line(error: Exception) -> str:
    """Return the class of an error and its first line."""
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no word")
    return f"{type(error).__name__}: {first_line}"[:MAX_ERROR_LENGTH]


def run_worker(work: Callable[[WorkerJob], list[dict[str, Any]]]) -> None:
    """Run a worker with the arguments of the command line."""
    subject, out, seconds = sys.argv[1:]
    job = WorkerJob(Path(subject), Path(out), int(seconds))
    (job.out / ROWS_FILE).write_text(json.dumps(work(job), indent=1))
