"""The runner's arithmetic on seeded arrays, as a digest for each part: the same on every machine, Python and numpy.

A script for a device, which may have numpy and `edgerun.pyz` alone: `python same_bits.py edgerun.pyz` prints them as
JSON. `python -m tests.runner.same_bits > tests/runner/same_bits.json` stores them anew, where that is meant.
`CLOSE` are numbers that exponentials of numpy are part of: those may differ by a last bit, and are held to `NEAR`.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__" and len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])

import numpy as np

from edgekit.runner import box_heads, input_path, postprocess, smoothing
from edgekit.runner.box_heads import BoxHead, to_points
from edgekit.runner.boxes import BoxOptions, Decoder
from edgekit.runner.inputs.picture import fit_picture
from edgekit.runner.inputs.resampling import Resampler
from edgekit.runner.postprocess.classification import softmax
from edgekit.runner.postprocess.multi_label import sigmoid
from edgekit.runner.preprocess import transform
from edgekit.runner.preprocess.sliding_windows import SlidingPreprocess

NEAR = 1e-6
LABELS = ["no", "yes", "other"]
SIZE, POINTS = (112, 160), 350
SIZES = ((90, 37), (37, 90), (320, 240), (160, 112), (5, 3))
MEL = {
    "step": "log_mel", "rate_hz": 8000, "window_samples": 200, "hop_samples": 80, "fft_samples": 256,
    "mels": 20, "low_hz": 60.0, "high_hz": 3800.0, "floor": 1e-6,
}  # fmt: skip
SMOOTHINGS = (
    {"method": "majority", "windows": 3},
    {"method": "mean", "windows": 5},
    {"method": "hysteresis", "enter": 0.6, "leave": 0.3},
)
TASKS = ("classification", "multi_label")


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Doubles from 0 to 1 by Python's generator, which never changes; numpy's may."""
    generator = random.Random(seed)
    return np.array([generator.random() for _ in range(int(np.prod(shape)))]).reshape(shape)


def outputs(seed: int) -> np.ndarray:
    """Of a detector: overlapping boxes, and logits in steps, so that many are equal."""
    sides = numbers(seed, POINTS, 4) * 2 - 0.3
    logits = np.floor(numbers(seed + 1, POINTS, 3) * 96) / 16 - 4
    return np.concatenate([sides, logits], axis=1).astype(np.float32)


def manifest(task: str, **changes: Any) -> Any:
    """As much of one as answers need."""
    fields = {"task": task, "activation": "none", "labels": LABELS, "threshold": None, "smoothing": None}
    raw = SimpleNamespace(shape=(*SIZE, 3))
    return SimpleNamespace(**{**fields, "raw": raw, "output_shape": (POINTS, 7), **changes})


def boxes() -> list[Any]:
    """`Decoder`, at several limits."""
    ways = (BoxOptions(0.05, 0.5, 100), BoxOptions(0.3, 0.3, 100), BoxOptions(0.5, 0.7, 20))
    found = [Decoder(SIZE, POINTS, options)(outputs(seed)) for options in ways for seed in range(4)]
    return [part for each in found for part in each]


def heads() -> list[Any]:
    """The outputs of published detectors, and the exponentials and logarithms in their decoding."""
    spread = (numbers(41, 4000) - 0.5) * 1400
    functions = (box_heads.exp, box_heads.exp32, box_heads.sigmoid32)
    found: list[Any] = [function(spread) for function in functions]
    found += [box_heads.log(numbers(42, 4000) * 1e6), box_heads.logit32(numbers(43, 4000))]
    table = ((numbers(44, POINTS, 40) - 0.5) * 8).astype(np.float32)
    grid = {"cells": [14, 25], "step": [8, 6.4], "sizes": [[17, 11]]}
    anchors = [[[10.5, 13.25]], [[33, 23]]]
    ways: list[tuple[int, dict[str, Any]]] = [
        (35, {"boxes": "distances", "bins": 8}),
        (8, {"boxes": "exponential", "parts": (("boxes", "objectness", "classes"),)}),
        (7, {"boxes": "anchors", "anchors": anchors}),
        (8, {"boxes": "priors", "priors": (grid,), "scores": "softmax", "background": 0}),
        (7, {"boxes": "centre", "normalized": True}),
        (6, {"boxes": "corners_yx", "scores": "index", "parts": (("boxes", "score", "index"),)}),
    ]
    return [*found, *(to_points([table[:, :columns]], BoxHead(SIZE, 3, **fields)) for columns, fields in ways)]


def detections() -> list[Any]:
    """Whole answers: probabilities too, and boxes in the pixels of a picture."""
    to_answer = postprocess.make_postprocessor(manifest("detection", boxes=BoxOptions(0.3, 0.5, 100)._asdict()))
    resize = input_path.picture_steps((*SIZE, 3), "letterbox")[1]
    answers = [to_answer(outputs(seed), 1, {}) for seed in range(4)]
    placed = [input_path.picture_transform(size, resize) for size in SIZES]
    moved = [place.to_picture(each.box) for place in placed for each in answers[0].boxes]
    return [[each.to_dict() for each in answers], placed, moved]


def masks() -> list[Any]:
    """A segmentation with its runs."""
    to_answer = postprocess.make_postprocessor(manifest("segmentation", output_shape=(3, 28, 40)))
    answer = to_answer(numbers(7, 3, 28, 40).astype(np.float32), 1, {})
    return [answer.mask, answer.to_dict()]


def letterbox() -> list[Any]:
    """Pictures brought to size by Pillow; no part where that is not installed."""
    from PIL import Image

    found = []
    for seed, (width, height) in enumerate(SIZES):
        picture = Image.fromarray((numbers(seed, height, width, 3) * 256).astype(np.uint8))
        for how in ("letterbox", "stretch", "crop"):
            for channels in (1, 3):
                found.append(fit_picture(picture, channels, input_path.picture_steps((*SIZE, channels), how)[1]))
    return found


def preprocess() -> list[Any]:
    """Steps of pictures."""
    steps = [
        {"step": "resize", "height": 31, "width": 50}, {"step": "channels", "count": 1},
        {"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.45], "std": [0.225]},
    ]  # fmt: skip
    return [transform.apply(steps, (numbers(seed, 40 + seed, 37, 3) * 256).astype(np.uint8)) for seed in range(3)]


def sound() -> np.ndarray:
    """(samples,) float32, quiet and loud."""
    return ((numbers(11, 9000) * 2 - 1) * numbers(12, 9)[:, None].repeat(1000, axis=1).ravel()).astype(np.float32)


def sliding() -> list[Any]:
    """Log-mel spectrograms of windows that overlap."""
    steps = [{"step": "scale", "factor": 0.9}, MEL, {"step": "normalize", "mean": [-3.0], "std": [2.0]}]
    windows, x = SlidingPreprocess(steps, 2000), sound()
    return [windows(x[start : start + 2000], start) for start in (0, 160, 240, 1000, 1007, 6000)]


def resampled() -> list[Any]:
    """A sound in parts, at other rates."""
    found = []
    for from_hz, to_hz in ((44100, 16000), (8000, 16000)):
        resampler, x = Resampler(from_hz, to_hz), sound()
        parts = [resampler.push(x[place : place + 777]) for place in range(0, len(x), 777)]
        found.append(np.concatenate([*parts, resampler.finish()]))
    return found


def smoothed() -> list[Any]:
    """Every way to smooth, over answers whose numbers are probabilities."""
    found = []
    for task in TASKS:
        to_answer = postprocess.make_postprocessor(manifest(task))
        answers = [to_answer(row, 2, {}) for row in numbers(21, 40, 3).astype(np.float32)]
        for way in SMOOTHINGS:
            smooth = smoothing.make_smoother(manifest(task, smoothing=way))
            assert smooth is not None
            found.append([smoothing.to_json_dict(smooth(each)) for each in answers])
    return found


PARTS = {part.__name__: part for part in (boxes, heads, detections, masks, preprocess, sliding, resampled, smoothed)}
CLOSE = {"softmax": softmax, "sigmoid": sigmoid}


def digest(values: list[Any]) -> str:
    """Of arrays with their shapes and types, and of what JSON can hold, floats to their last bit."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
        else:
            found.update(json.dumps(value, sort_keys=True).encode())
    return found.hexdigest()


def measured() -> dict[str, Any]:
    """What this machine computes; `letterbox` only with Pillow."""
    found: dict[str, Any] = {name: digest(part()) for name, part in PARTS.items()}
    with suppress(ImportError):
        found["letterbox"] = digest(letterbox())
    scores = ((numbers(31, 20, 5) - 0.5) * 20).astype(np.float32)
    return {**found, **{name: [row.tolist() for row in map(close, scores)] for name, close in CLOSE.items()}}


def differences(found: dict[str, Any], expected: dict[str, Any], has_pillow: bool) -> list[str]:
    """Parts that differ from what is stored, or are missing."""
    names = [name for name in expected if has_pillow or name != "letterbox"]
    return [name for name in names if name not in found or not _alike(name, found[name], expected[name])]


def _alike(name: str, found: Any, expected: Any) -> bool:
    if name not in CLOSE:
        return bool(found == expected)
    return bool(np.abs(np.array(found) - np.array(expected)).max() <= NEAR)


if __name__ == "__main__":
    print(json.dumps(measured(), indent=1))
