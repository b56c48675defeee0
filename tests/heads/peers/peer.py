"""What the programs in the environment of the peers share: their jobs, and how they answer.

A program is called as `python PROGRAM FOLDER …`. Each folder has `job.json` with the other fields of `Job`, and
`calibration.npy` and `pictures.npy`, pictures (n, height, width, 3) of bytes in RGB. The program writes the exported
file and `answers.json` into it.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

BATCH = 8
Boxes = list[list[float]]
"""Left, top, right and bottom in pixels, score and class of each box."""
Answers = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A network to export, and how boxes are selected.

    Attributes
    ----------
    network, name
        The network in the words of the package, and the name of the file to write.
    size
        (height, width) of the pictures.
    least
        The lowest probability of a box.
    overlap, most
        Of boxes that overlap more than this one is kept, and this many in all.
    """

    folder: str
    network: str
    name: str
    size: tuple[int, int]
    labels: list[str]
    least: float
    overlap: float
    most: int

    @property
    def file(self) -> Path:
        """The file to write."""
        return Path(self.folder) / self.name

    def pictures(self) -> np.ndarray:
        """Return the pictures to find boxes in."""
        pictures: np.ndarray = np.load(Path(self.folder) / "pictures.npy")
        return pictures

    def batches(self) -> list[torch.Tensor]:
        """Return the pictures of the calibration as batches (n, 3, height, width) from 0 to 255."""
        pictures = torch.from_numpy(np.load(Path(self.folder) / "calibration.npy"))
        return list(pictures.permute(0, 3, 1, 2).float().split(BATCH))

    def log(self, what: str) -> None:
        """Print what has been done."""
        print(f"{time.strftime('%H:%M:%S')} {self.network}: {what}", flush=True)


def answers(package: str, job: Job, predict: Callable[[np.ndarray, float], Boxes]) -> Answers:
    """Return the boxes of all pictures, before and after suppression, as `predict(picture, overlap)` finds them."""
    return {
        "package": package,
        "candidates": [predict(picture, 1.0) for picture in job.pictures()],
        "boxes": [predict(picture, job.overlap) for picture in job.pictures()],
    }


def main(answer: Callable[[Job], Answers]) -> None:
    """Do the jobs in the folders that the arguments of the program name."""
    torch.set_num_threads(1)
    for folder in map(Path, sys.argv[1:]):
        job = Job(folder=str(folder), **json.loads((folder / "job.json").read_text()))
        torch.manual_seed(0)
        try:
            found = answer(job)
        except Exception:
            found = {"error": traceback.format_exc()}
        (folder / "answers.json").write_text(json.dumps(found))
        job.log(f"answered{', with an error' if 'error' in found else ''}")
