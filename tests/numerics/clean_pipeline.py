"""What the seeded faults start from: pictures, a network trained for a second, and its files for every target."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import nn

from edgekit.core.config import TrainOptions
from edgekit.data import Data, Split, load, parse
from edgekit.models import store
from edgekit.models.store import ModelSpec
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import ConversionJob, ConversionStep, ConvertedFiles, plain_method
from edgekit.training.fit import fit

CLASSES = ("red", "green", "blue", "striped")
SIDE, RAW_SIDE = 16, 24
STEPS: list[dict[str, Any]] = [
    {"step": "resize", "height": SIDE, "width": SIDE},
    {"step": "scale", "factor": 1 / 255},
    {"step": "normalize", "mean": [0.5, 0.4, 0.3], "std": [0.25, 0.2, 0.3]},
]


@dataclass(frozen=True, eq=False)
class Clean:
    """One without faults: `files` by target and precision, a folder and its contents; `scratch` for broken ones."""

    data: Data
    module: nn.Module
    spec: ModelSpec
    model: Path
    files: dict[tuple[str, str], tuple[Path, ConvertedFiles]]
    scratch: Path


def pictures(samples: int, seed: int) -> Split:
    """(n, 24, 24, 3) uint8: a blob of colour on a gradient, or stripes; channel order, place and filter all matter."""
    random = np.random.default_rng(seed)
    y = np.arange(samples) % len(CLASSES)
    rows, columns = np.mgrid[:RAW_SIDE, :RAW_SIDE]
    x = np.empty((samples, RAW_SIDE, RAW_SIDE, 3))
    for picture, label in zip(x, y, strict=True):
        top, left = random.uniform(6, 18, 2)
        blob = 150 * np.exp(-((rows - top) ** 2 + (columns - left) ** 2) / 30)
        picture[:] = (rows * random.uniform(0, 4) + random.uniform(0, 40))[..., None]
        if label < 3:
            picture[..., label] += blob
        else:
            picture += (60 * (1 + np.sin(columns * random.uniform(1.2, 1.8))))[..., None] * (0.3, 0.9, 0.6)
    x += random.normal(0, 12, x.shape)
    return Split(x.clip(0, 255).astype(np.uint8), y.astype(np.int64))


def data() -> Data:
    return Data(pictures(320, 0), pictures(60, 1), pictures(120, 2), CLASSES, "image", "made", held_out=pictures(40, 3))


def spec_of(builder: str, **kwargs: Any) -> ModelSpec:
    return ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=(3, SIDE, SIDE),
        num_classes=len(CLASSES),
        classes=CLASSES,
        preprocess=STEPS,
        raw={"kind": "image", "shape": [RAW_SIDE, RAW_SIDE, 3], "dtype": "uint8"},
    )


def trained(dataset: Data, builder: str, epochs: int = 8, **kwargs: Any) -> tuple[nn.Module, ModelSpec]:
    spec = spec_of(builder, **kwargs)
    module = store.build(spec, seed=1)
    options = TrainOptions(epochs=epochs, batch_size=16, augment="none")
    fit(module, dataset, STEPS, options, seed=1, device="cpu", threads=1)
    return module, spec


def converted(
    folder: Path, dataset: Data, module: nn.Module, spec: ModelSpec, target: str, precisions: tuple[str, ...]
) -> dict[str, tuple[Path, ConvertedFiles]]:
    """Files of each precision, by the stage's own child process; `folder/model` is the network."""
    store.save(folder / "model", module, spec)
    calibration = folder / "calibration.npy"
    np.save(calibration, evaluate.network_inputs(dataset.calibration.x, spec.preprocess))
    steps = tuple(
        ConversionStep(each, plain_method(each), folder / "model", folder / f"{each}-{target}") for each in precisions
    )
    made = launch.convert(ConversionJob("varied", target, calibration, steps), folder, 300, threading.Event())
    found = {}
    for step, outcome in zip(steps, made, strict=True):
        assert isinstance(outcome, launch.ConvertedStep), outcome
        found[step.precision] = step.out, outcome.files
    return found


def leaked_npz(clean: Clean, name: str, source: str) -> None:
    """Load arrays of which three pictures of one split also stand in another."""
    splits = {"train": clean.data.train, "validation": clean.data.validation, "test": clean.data.test}
    arrays = {f"{part}_{each}": getattr(split, part).copy() for each, split in splits.items() for part in "xy"}
    arrays[f"x_{name}"][5:8] = arrays[f"x_{source}"][10:13]
    path = clean.scratch / "leaked.npz"
    np.savez(path, classes=np.array(CLASSES), **arrays)
    load(parse({"source": "npz", "path": str(path), "calibration_samples": 20}))


def leaked_folder(clean: Clean) -> None:
    """Load a folder of PNG files; three pictures of test stand in train too, compressed otherwise."""
    home = clean.scratch / "pictures"
    splits = {
        "train": (clean.data.train, 120),
        "validation": (clean.data.validation, 40),
        "test": (clean.data.test, 40),
    }
    for split, (samples, count) in splits.items():
        for place in range(count):
            _save(home / split / CLASSES[samples.y[place]] / f"{place}.png", samples.x[place], 6)
    for place in range(3):
        _save(home / "train" / CLASSES[clean.data.test.y[place]] / f"copy{place}.png", clean.data.test.x[place], 0)
    load(parse({"source": "image_folder", "path": str(home), "size": RAW_SIDE, "calibration_samples": 20}))


def _save(path: Path, picture: np.ndarray, compress_level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, compress_level=compress_level)
