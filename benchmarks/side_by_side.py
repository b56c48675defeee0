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
from functools import partial
from pathlib import Path

import torch

from edgekit.core.config import TrainOptions
from edgekit.data import Data, load, parse
from edgekit.models.ds_cnn import ds_cnn
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import fit
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
                alone = [train(data, Path(one), seed, options.epochs, threads) for seed in range(options.trainings)]
                in_turn_s, began = time.monotonic() - began, time.monotonic()
                home = Path(other)
                works = [
                    Training(
                        f"student {seed}",
                        place(home, seed),
                        options.epochs,
                        partial(train, data, home, seed, options.epochs, threads),
                    )
                    for seed in range(options.trainings)
                ]
                ahead(works, home)
                recalled = [train(data, home, seed, options.epochs, threads) for seed in range(options.trainings)]
                at_once_s = time.monotonic() - began
            equal = all(
                torch.equal(a, b)
                for first, second in zip(alone, recalled, strict=True)
                for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
            )
            row = (threads, f"{in_turn_s:.1f}", f"{at_once_s:.1f}", f"{in_turn_s / at_once_s:.2f}", equal)
            print(" | ".join(map(str, row)), flush=True)


def place(home: Path, seed: int) -> Checkpoint:
    """Where a student's state is kept."""
    return Checkpoint(home / f"{seed}.safetensors", str(seed))


def train(data: Data, home: Path, seed: int, epochs: int, threads: int) -> torch.nn.Module:
    """A student of the digits, with its checkpoint."""
    torch.manual_seed(seed)
    network = ds_cnn((1, 8, 8), 10, width=48, blocks=4, block_strides=[2, 1, 2, 1])
    chosen = TrainOptions(epochs=epochs, batch_size=32, learning_rate=0.1)
    fit(
        network, data, PREPROCESS, chosen, seed=seed, device="cpu", threads=threads, resume=place(home, seed)
    )  # fmt: skip
    return network


if __name__ == "__main__":
    import benchmarks.side_by_side as itself  # the functions must have a name that another process can import

    itself.main()
