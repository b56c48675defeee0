"""What a user has for each task: a few files as they would lie on a disk, in which there is something to learn.

A case writes its data into a folder, and says how `edgekit init` is asked, which files are given to the device, and
what is true of them.
"""

from __future__ import annotations

import csv
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, make_friedman1

from edgekit.core.tasks import Task
from tests.core.tasks import task_data
from tests.data import boxed, masked

RATE_HZ = 8000


@dataclass(frozen=True)
class Data:
    """The path for `--data`, the files that the device is to answer, and what is true of each (`right.py`)."""

    path: Path
    files: list[Path]
    truths: list[Any]


@dataclass(frozen=True)
class Case:
    """`write(folder)` writes the data.

    `least` is what the baseline must reach on test, and `right` the share of right answers of each bundle: far above
    guessing, well below what they do reach. A detector that saw 32 pictures is rarely sure of what it finds. `options`
    are of stages that need more than the others.
    """

    task: Task
    write: Callable[[Path], Data]
    least: float
    right: float
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


def picture_classes(folder: Path) -> Data:
    """Digits as pictures in folders that are called as their classes."""
    digits, names = load_digits(n_class=3), ["zero", "one", "two"]
    paths: dict[str, list[Path]] = {name: [] for name in names}
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        name = names[label]
        paths[name].append(folder / "data" / "train" / name / f"{number:04}.png")
        _save(image, paths[name][-1])
    chosen = [(path, name) for name in names for path in paths[name][:2]]
    return Data(folder / "data", [path for path, _ in chosen], [name for _, name in chosen])


def good_and_bad(folder: Path) -> Data:
    """Pictures of threes, which are good, and of other digits for the test alone."""
    digits, data = load_digits(), folder / "data"
    three = digits.target == 3
    for number, image in enumerate(digits.images[three]):
        _save(image, data / ("train" if number % 3 else "test") / "good" / f"{number:04}.png")
    for number, image in enumerate(digits.images[~three][:90]):
        _save(image, data / "test" / "other" / f"{number:04}.png")
    good, other = (sorted((data / "test" / name).iterdir())[:4] for name in ("good", "other"))
    return Data(data, [*good, *other], [False] * len(good) + [True] * len(other))


def table(folder: Path) -> Data:
    """A row for each sample: ten numbers and the value that follows from them."""
    x, y = make_friedman1(900, 10, noise=0.3, random_state=0)
    y = (y - y.mean()) / y.std()
    names = [f"x{place}" for place in range(10)]
    rows = {"meter.csv": (np.c_[x, y], [*names, "y"]), "few.csv": (x[:10], names)}
    for name, (written, columns) in rows.items():
        with (folder / name).open("w", newline="") as stream:
            csv.writer(stream).writerows([columns, *written.round(5).tolist()])
    return Data(folder / "meter.csv", [folder / "few.csv"], y[:10].tolist())


def arrays(folder: Path) -> Data:
    """Digits as arrays for a network of several inputs, each with several labels: a picture, sums, places."""
    found = task_data.multi_label()
    pictures = found.pop("x_train")
    tensors = {
        "picture": pictures[:, None],
        "sums": pictures.mean(axis=2) / 255,
        "brightest": pictures.argmax(axis=2)[:, ::2],
    }
    named = {f"x_train.{name}": array for name, array in tensors.items()}
    np.savez(folder / "digits.npz", allow_pickle=False, **found, **named)
    files = [folder / f"{number}.npz" for number in range(6)]
    for number, path in enumerate(files):
        np.savez(path, allow_pickle=False, **{name: array[number] for name, array in tensors.items()})
    truths = [
        [label for label, holds in zip(task_data.LABELS, row, strict=True) if holds] for row in found["y_train"][:6]
    ]
    return Data(folder / "digits.npz", files, truths)


def boxes(folder: Path) -> Data:
    """Pictures with things of several kinds, and their boxes as YOLO has them."""
    scenes = boxed.scenes(90)
    boxed.WRITERS["yolo"](folder / "data", scenes)
    return _test_files(folder / "data", {scene.name: scene.things for scene in scenes if scene.split == "test"}, 12)


def masks(folder: Path) -> Data:
    """Pictures with discs and bars, and a mask for each."""
    scenes = masked.scenes(90)
    masked.WRITERS["folders"](folder / "data", scenes)
    return _test_files(folder / "data", {scene.name: scene.mask for scene in scenes if scene.split == "test"}, 4)


def messages(folder: Path) -> Data:
    """Texts whose words decide their class."""
    rng = np.random.default_rng(0)
    words = {
        "garden": ["soil", "rose", "water", "leaf", "seed", "green"],
        "kitchen": ["pan", "salt", "oven", "bread", "knife", "plate"],
    }
    common = ["the", "a", "with", "and", "then", "some", "of", "my", "very"]
    data = folder / "data"
    for name, own in words.items():
        for number in range(150):
            text = " ".join(rng.choice(own if rng.random() < 0.4 else common) for _ in range(12))
            path = data / "train" / name / f"{number:04}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    chosen = [(data / "train" / name / f"{number:04}.txt", name) for name in words for number in range(3)]
    return Data(data, [path for path, _ in chosen], [name for _, name in chosen])


def recording(folder: Path) -> Data:
    """One long recording of noise in which a tone sounds now and then, with its label track."""
    rng = np.random.default_rng(0)
    spans, parts = [], []
    for number in range(60):
        seconds = 2.0
        at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
        tone = number % 2 == 1
        parts.append(rng.normal(0, 0.02, len(at)) + tone * 0.3 * np.sin(2 * np.pi * 900 * at))
        spans.append(f"{number * seconds:.6f}\t{(number + 1) * seconds:.6f}\t{'tone' if tone else 'quiet'}")
    sound = (np.concatenate(parts) * 32767).clip(-32768, 32767).astype("<i2")
    (folder / "room.txt").write_text("\n".join([*spans, ""]))
    for name, part in (("room.wav", sound), ("piece.wav", sound[: 4 * RATE_HZ])):
        with wave.open(str(folder / name), "wb") as stream:
            stream.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
            stream.writeframes(part.tobytes())
    return Data(folder / "room.wav", [folder / "piece.wav"], [(0.0, 2.0, "quiet"), (2.0, 4.0, "tone")])


LONGER = {"epochs": 80}
GENTLE = {"learning_rate": 0.02}
"""Few windows and few epochs: at the usual rate some networks grow so wild that pruning or int8 ruins them."""
CASES = {
    "texts": Case("classification", messages, 0.8, 0.8),
    "recording": Case(
        "classification", recording, 0.9, 0.9, {"profile": GENTLE, "distill": GENTLE, "prune": {"epochs": 10}}
    ),
    "values": Case("regression", table, 0.6, 0.7),
    "labels": Case("multi_label", arrays, 0.8, 0.7),
    "oddities": Case("anomaly", good_and_bad, 0.75, 0.7),
    "vectors": Case("embedding", picture_classes, 0.9, 0.8),
    "boxes": Case("detection", boxes, 0.5, 0.1, {"profile": LONGER, "distill": LONGER, "prune": {"epochs": 10}}),
    "masks": Case("segmentation", masks, 0.5, 0.5),
}


def _test_files(data: Path, truths: dict[str, Any], count: int) -> Data:
    """The first pictures of test, by their names."""
    names = list(truths)[:count]
    return Data(data, [data / "images" / "test" / f"{name}.png" for name in names], [truths[name] for name in names])


def _save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((image * 15.9).astype(np.uint8).repeat(2, 0).repeat(2, 1)).save(path)
