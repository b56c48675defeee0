"""What trainings side by side give on this machine: students of the digits, in turn and at once, with the same threads.

    python -m benchmarks.side_by_side [--trainings 3] [--epochs 4] [--at-once 2] [--threads 1,2] [--repetitions 3]

For each number of threads a training in turn, in this process, takes turns with as many at once, each in a process of
its own with its start. Told are the seconds of both and their ratio, by repetition, and whether the weights are equal.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from edgekit.core.config import TrainOptions
from edgekit.data import Data, load, parse
from edgekit.models.from_artifact import spec_for
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import ALONE
from edgekit.training.side_by_side import PARALLEL, Training, ahead

PREPROCESS = [{"step": "scale", "factor": 1 / 255}]


def main() -> None:
    """A row for each repetition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    data = load(parse({"source": "digits"})).withhold_test()
    os.environ[PARALLEL] = str(options.at_once)
    print("threads | in turn, s | at once, s | in turn / at once | weights equal")
    for threads in map(int, options.threads.split(",")):
        for _ in range(options.repetitions):
            with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
                began = time.monotonic()
                alone = [each.fit(data)[0] for each in students(data, Path(one), options, threads)]
                in_turn_s, began = time.monotonic() - began, time.monotonic()
                made = students(data, Path(other), options, threads)
                ahead(made, data, Path(other))
                recalled = [each.fit(data)[0] for each in made]
                at_once_s = time.monotonic() - began
            equal = all(
                torch.equal(a, b)
                for first, second in zip(alone, recalled, strict=True)
                for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
            )
            row = (threads, f"{in_turn_s:.1f}", f"{at_once_s:.1f}", f"{in_turn_s / at_once_s:.2f}", equal)
            print(" | ".join(map(str, row)), flush=True)


def students(data: Data, home: Path, options: argparse.Namespace, threads: int) -> list[Training]:
    """Students of the digits, each with its checkpoint."""
    kwargs = {"width": 48, "blocks": 4, "block_strides": [2, 1, 2, 1]}
    spec = spec_for(data, "edgekit.models.ds_cnn:ds_cnn", kwargs, PREPROCESS)
    chosen = TrainOptions(epochs=options.epochs, batch_size=32, learning_rate=0.1)
    return [
        Training(f"student {n}", Checkpoint(home / f"{n}.safetensors", str(n)), spec, chosen, n, "cpu", threads, ALONE)
        for n in range(options.trainings)
    ]


if __name__ == "__main__":
    main()
