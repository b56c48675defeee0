"""What a user has for each task: a few files as they would lie on a disk, in which there is something to learn.

A case writes its data into a folder, and says how `edgekit init` is asked and which files are given to the device.
"""

from __future__ import annotations

import csv
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, make_friedman1

from edgekit.core.tasks import Task
from tests.core.tasks import made
from tests.data import boxed, masked

RATE_HZ = 8000


@dataclass(frozen=True)
class Case:
    """`write(folder)` gives the path for `--data`, and the files that the device is to answer.

    `least` is what the baseline must reach on test: far above guessing, well below what it does reach.
    """

    task: Task
    write: Callable[[Path], tuple[Path, list[Path]]]
    least: float


def picture_classes(folder: Path) -> tuple[Path, list[Path]]:
    """Digits as pictures in folders that are called as their classes."""
    digits = load_digits(n_class=3)
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        _save(image, folder / "data" / "train" / ["zero", "one", "two"][label] / f"{number:04}.png")
    return folder / "data", sorted((folder / "data").rglob("*.png"))[:3]


def good_and_bad(folder: Path) -> tuple[Path, list[Path]]:
    """Pictures of threes, which are good, and of other digits for the test alone."""
    digits = load_digits()
    three = digits.target == 3
    for number, image in enumerate(digits.images[three]):
        _save(image, folder / "data" / ("train" if number % 3 else "test") / "good" / f"{number:04}.png")
    for number, image in enumerate(digits.images[~three][:90]):
        _save(image, folder / "data" / "test" / "other" / f"{number:04}.png")
    return folder / "data", sorted((folder / "data").rglob("*.png"))[:3]


def table(folder: Path) -> tuple[Path, list[Path]]:
    """A row for each sample: ten numbers and the value that follows from them."""
    x, y = make_friedman1(900, 10, noise=0.3, random_state=0)
    rows = np.c_[x, (y - y.mean()) / y.std()]
    for path, written in ((folder / "meter.csv", rows), (folder / "few.csv", rows[:3])):
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([[*(f"x{place}" for place in range(10)), "y"], *written.round(5).tolist()])
    return folder / "meter.csv", [folder / "few.csv"]


def arrays(folder: Path) -> tuple[Path, list[Path]]:
    """Digits as arrays for a network of several inputs, each with several labels: a picture, sums, places."""
    found = made.multi_label()
    pictures = found.pop("x_train")
    tensors = {
        "picture": pictures[:, None],
        "sums": pictures.mean(axis=2) / 255,
        "brightest": pictures.argmax(axis=2)[:, ::2],
    }
    named = {f"x_train.{name}": array for name, array in tensors.items()}
    np.savez(folder / "digits.npz", allow_pickle=False, **found, **named)
    files = [folder / f"{number}.npz" for number in range(3)]
    for number, path in enumerate(files):
        np.savez(path, allow_pickle=False, **{name: array[number] for name, array in tensors.items()})
    return folder / "digits.npz", files


def boxes(folder: Path) -> tuple[Path, list[Path]]:
    """Pictures with things of two kinds, and their boxes as YOLO has them."""
    boxed.WRITERS["yolo"](folder / "data", boxed.scenes(90))
    return folder / "data", sorted((folder / "data").rglob("*.png"))[:3]


def masks(folder: Path) -> tuple[Path, list[Path]]:
    """Pictures with discs and bars, and a mask for each."""
    masked.WRITERS["folders"](folder / "data", masked.scenes(90))
    return folder / "data", sorted((folder / "data" / "images").rglob("*.png"))[:3]


def messages(folder: Path) -> tuple[Path, list[Path]]:
    """Texts whose words tell their class."""
    rng = np.random.default_rng(0)
    words = {
        "garden": ["soil", "rose", "water", "leaf", "seed", "green"],
        "kitchen": ["pan", "salt", "oven", "bread", "knife", "plate"],
    }
    common = ["the", "a", "with", "and", "then", "some", "of", "my", "very"]
    for name, own in words.items():
        for number in range(150):
            text = " ".join(rng.choice(own if rng.random() < 0.4 else common) for _ in range(12))
            path = folder / "data" / "train" / name / f"{number:04}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder / "data", sorted((folder / "data").rglob("*.txt"))[:3]


def recording(folder: Path) -> tuple[Path, list[Path]]:
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
    for name, part in (("room.wav", sound), ("piece.wav", sound[: 3 * RATE_HZ])):
        with wave.open(str(folder / name), "wb") as stream:
            stream.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
            stream.writeframes(part.tobytes())
    return folder / "room.wav", [folder / "piece.wav"]


CASES = {
    "texts": Case("classification", messages, 0.8),
    "recording": Case("classification", recording, 0.9),
    "values": Case("regression", table, 0.6),
    "labels": Case("multi_label", arrays, 0.8),
    "oddities": Case("anomaly", good_and_bad, 0.75),
    "vectors": Case("embedding", picture_classes, 0.9),
    "boxes": Case("detection", boxes, 0.3),
    "masks": Case("segmentation", masks, 0.5),
}


def _save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((image * 15.9).astype(np.uint8).repeat(2, 0).repeat(2, 1)).save(path)
