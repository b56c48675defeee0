"""Compare networks that start from trained weights with the same networks from new weights, on few pictures.

    python -m benchmarks.transfer [--pictures 20 100 500] [--side 96] [--seeds 3] [--epochs N] [--results FILE]

For each seed, both networks are trained on the same pictures a class of CIFAR-10, scaled to `--side` pixels, and tested
on the same 1,000 test pictures. CIFAR-10 comes from the folder that EDGEKIT_SHARED names. Finished trainings are kept
in FILE, one JSON object a line, so that an interrupted comparison goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.harness import NotRun, machine_conditions, markdown, median, parser
from edgekit import data as datas
from edgekit.cli.init import pretrained_network
from edgekit.core.config import TrainOptions
from edgekit.core.pretrained import Pretrained
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training.fit import fit
from edgekit.training.predict import evaluate

TEST_PICTURES = 100
"""Test pictures of each class."""
EXTRA_SHARE = 0.25
"""Pictures beside those for training, as a share of them: for validation, by which the best epoch is chosen."""
STARTS = ("pretrained", "scratch")
STEPS = 600
"""Optimizer steps of a training, if --epochs does not say otherwise."""
BATCH = 32


def main() -> None:
    """Train what is missing in the file of results, and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, nargs="+", default=[20, 100, 500], help="pictures of each class")
    arguments.add_argument("--side", type=int, default=96, help="side of the samples, pixels")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, help="by default as many as make 600 steps, at least 8")
    arguments.add_argument("--results", type=Path, default=Path("build/transfer.jsonl"))
    options = arguments.parse_args()
    if not (shared := os.environ.get("EDGEKIT_SHARED")):
        raise SystemExit(f"benchmarks.transfer: {NotRun('EDGEKIT_SHARED is not set')}")
    archive = Path(shared) / "data/cifar10.zip"
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    rows = []
    for pictures in options.pictures:
        epochs = options.epochs or max(8, round(STEPS * BATCH / (10 * pictures)))
        for seed in range(options.seeds):
            for start in STARTS:
                case = {"pictures": pictures, "side": options.side, "seed": seed, "epochs": epochs, "start": start}
                row = next((each for each in done if case.items() <= each.items()), None)
                if row is None:
                    row = {**case, **train(archive, **case)}
                    with options.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                rows.append(row)
    print(machine_conditions())
    print(table(rows))


def train(archive: Path, pictures: int, side: int, seed: int, epochs: int, start: str) -> dict[str, float]:
    """Train one network, and return its accuracy on the test pictures, a fraction, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        data = few_pictures(archive, Path(folder), pictures, side, seed)
        network = pretrained_network.NETWORK
        pretrained = Pretrained.model_validate(network["pretrained"]) if start == "pretrained" else None
        steps = [step for step, _ in pretrained_network.STEPS]
        spec = spec_for(data, network["builder"], network["kwargs"], steps, pretrained=pretrained)
        module = store.build(spec, seed)
        options = TrainOptions(
            epochs=epochs,
            batch_size=BATCH,
            learning_rate=pretrained_network.LEARNING_RATE if pretrained else 0.1,
            augment="shift_flip",
        )
        began = time.monotonic()
        fit(module, data, steps, options, seed=seed, pretrained=pretrained)
        seconds = time.monotonic() - began
        return {"accuracy": evaluate(module, data.test, steps), "seconds": seconds}


def few_pictures(
    archive: Path, folder: Path, pictures: int, side: int, seed: int, test_pictures: int = TEST_PICTURES
) -> Data:
    """Read a random choice of CIFAR-10's pictures, the same for the same seed."""
    by_class: dict[tuple[str, str], list[str]] = defaultdict(list)
    with zipfile.ZipFile(archive) as source:
        for name in source.namelist():
            if name.endswith(".jpg"):
                split, class_name = name.split("/")[-3:-1]
                by_class[split, class_name].append(name)
        for (split, class_name), names in by_class.items():
            count = pictures + max(4, round(EXTRA_SHARE * pictures)) if split == "train" else test_pictures
            for name in random.Random(f"{seed} {split} {class_name}").sample(sorted(names), count):
                path = folder / split / class_name / Path(name).name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.read(name))
    section: dict[str, Any] = {
        "source": "image_folder", "path": str(folder), "size": side, "channels": 3, "calibration_samples": 10,
        "cache": str(folder / "cache"), "validation_fraction": EXTRA_SHARE / (1 + EXTRA_SHARE),
    }  # fmt: skip
    return datas.load(datas.parse(section, "classification"))


def table(rows: list[dict[str, Any]]) -> str:
    """Return accuracies as medians over seeds, and the medians of the paired gains in percentage points."""
    lines = []
    for pictures in sorted({row["pictures"] for row in rows}):
        accuracies = {
            start: [100 * row["accuracy"] for row in rows if row["pictures"] == pictures and row["start"] == start]
            for start in STARTS
        }
        gains = [one - other for one, other in zip(*accuracies.values(), strict=True)]
        epochs = next(row["epochs"] for row in rows if row["pictures"] == pictures)
        cells = [median(accuracies[start]).text("{:.1f}") for start in STARTS] + [median(gains).text("{:+.1f}")]
        lines.append([str(pictures), str(epochs), *cells])
    return markdown(("pictures a class", "epochs", "pretrained, %", "from new weights, %", "gain, points"), lines)


if __name__ == "__main__":
    main()
