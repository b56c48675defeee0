"""CIFAR-10's test pictures as JPEG, and MLPerf Tiny's int8 ResNet-8 on LiteRT. What it does not know is blood cells."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.drift.drifts import images
from benchmarks.drift.subjects import Subject, manifest
from edgekit.runner.bundle.manifest import RawSpec

SIDE, BATCH = 32, 50
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def shared() -> Path | None:
    """The folder of real data and models, which EDGEKIT_SHARED names; None where there is none."""
    folder = Path(os.environ.get("EDGEKIT_SHARED", ""))
    return folder if (folder / "data" / "cifar10.zip").is_file() else None


def load(quick: bool = False) -> Subject:
    """All 10,000 pictures; every fifth for a quick run. FileNotFoundError where the data are not there."""
    folder = shared()
    if folder is None:
        raise FileNotFoundError("EDGEKIT_SHARED does not name a folder with data/cifar10.zip")
    raws, classes = pictures(folder / "data" / "cifar10.zip", 5 if quick else 1)
    spec = RawSpec("image", (SIDE, SIDE, 3), "uint8")
    return Subject(
        name="CIFAR-10",
        what="test pictures of CIFAR-10, and MLPerf Tiny's int8 ResNet-8 on LiteRT",
        manifest=manifest("cifar10", spec, CLASSES, "none"),
        raws=raws,
        classes=classes,
        unknown=cells(folder / "data" / "bccd.zip"),
        answer=resnet((folder / "models" / "pretrainedResnet_quant.tflite").read_bytes()),
        drifts=images.COLOUR,
        references=1000,
    )


def pictures(archive: Path, every: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (n, 32, 32, 3) and classes (n,) of the test part."""
    from PIL import Image

    with zipfile.ZipFile(archive) as opened:
        names = sorted(name for name in opened.namelist() if "test/" in name and name.endswith(".jpg"))[::every]
        x = np.stack([np.asarray(Image.open(io.BytesIO(opened.read(name)))) for name in names])
    return x, np.array([CLASSES.index(name.split("/")[-2]) for name in names])


def cells(archive: Path) -> np.ndarray:
    """Six parts of each microscope picture, made as small as the pictures: uint8 (n, 32, 32, 3)."""
    from PIL import Image

    found = []
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(name for name in opened.namelist() if name.endswith(".jpg")):
            whole = Image.open(io.BytesIO(opened.read(name))).convert("RGB")
            for place in range(6):
                left, top = 200 * (place % 3), 220 * (place // 3)
                part = whole.crop((left, top, left + 200, top + 200)).resize((SIDE, SIDE))
                found.append(np.asarray(part))
    return np.stack(found)


def resnet(model: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """Probabilities (n, 10), as the int8 model gives them."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model, num_threads=1)
    given = interpreter.get_input_details()[0]
    interpreter.resize_tensor_input(given["index"], (BATCH, SIDE, SIDE, 3))
    interpreter.allocate_tensors()
    out = interpreter.get_output_details()[0]
    scale, zero = out["quantization"]

    def answer(raws: np.ndarray) -> np.ndarray:
        rows = []
        for start in range(0, len(raws), BATCH):
            batch = np.zeros((BATCH, SIDE, SIDE, 3), np.int8)
            part = raws[start : start + BATCH]
            batch[: len(part)] = (part.astype(np.int16) - 128).astype(np.int8)
            interpreter.set_tensor(given["index"], batch)
            interpreter.invoke()
            y = interpreter.get_tensor(out["index"])[: len(part)]
            rows.append((y.astype(np.float32) - zero) * np.float32(scale))
        return np.concatenate(rows)

    return answer
