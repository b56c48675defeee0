"""What suits data of this size and kind: networks, preprocess steps, batches, epochs, and a budget that it can show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import accuracy_drop, embedding
from edgekit.data import Data
from edgekit.runner.preprocess import transform

CONFIDENCE = 0.95
"""Of `budget.accuracy_confidence`, as it is by default."""
STEPS = 600
"""Optimiser steps after which a small network has learned most of what it will."""
LOOSE_PP, USUAL_PP = 15.0, 5.0
"""A budget above the first is hardly one; the second is what a first run should be able to show."""
LOST_SHARE = 0.01
"""Of the validation samples: how many a variant may lose in a first run."""


@dataclass(frozen=True)
class Sizes:
    """Samples of each split as the config leaves them, and what follows from them; `least_batch` a batch must have."""

    train: int
    calibration: int
    validation: int
    test: int
    least_batch: int = 2

    @property
    def batch(self) -> int:
        """A power of two, about a twentieth of the train split and never more than all of it; or what it must be."""
        most = max(2, 1 << (self.train.bit_length() - 1))
        return max(self.least_batch, min(most, max(8, min(128, 1 << max(1, self.train // 20).bit_length() - 1))))

    @property
    def epochs(self) -> int:
        """Enough for some hundred steps, but not an evening of a large data set."""
        return int(min(60, max(8, round(STEPS / math.ceil(self.train / self.batch)))))

    @property
    def lost(self) -> int:
        """Validation samples that a variant may answer wrongly where the baseline is right."""
        return max(1, round(LOST_SHARE * self.validation))

    @property
    def drop_pp(self) -> float:
        """The drop that this leaves open, rounded up: a budget that can be met."""
        bound_pp = accuracy_drop.drop_of_counts(self.lost, 0, self.validation, CONFIDENCE).bound_pp
        step = 10 if bound_pp < 2 else 2
        return min(100.0, math.ceil(step * bound_pp) / step)


def small_validation_warning(sizes: Sizes) -> str:
    """What to do where so few samples validate that nearly every variant is inside the budget; empty elsewhere."""
    if sizes.drop_pp <= LOOSE_PP:
        return ""
    enough = next(n for n in range(10, 10_000, 10) if Sizes(1, 1, n, 1).drop_pp <= USUAL_PP)
    some = "sample shows" if sizes.validation == 1 else "samples show"
    return (
        f"{sizes.validation} validation {some} no drop below {sizes.drop_pp:g} pp, so the budget refuses next to "
        f"nothing; {enough} would show {USUAL_PP:g} pp: give more data, or a larger validation split"
    )


STRIDES = {"detection": 16, "segmentation": 16}
"""Pixels of a side for one cell of the coarsest map, `STRIDE` of each network; it imports torch, this does not."""
Network = dict[str, Any]
ANY = "edgekit.models.resnet:resnet8"
"""Where a config must name a network before the data are known."""
SMALLEST_FOR_RESNET = 16
LARGE = 64
"""Pixels from which on the first convolution halves the picture, as networks for photographs do."""
SMALLEST_FOR_OTHERS = 32
"""Pixels from which on the candidates have maps left to filter."""
HALVED = ("width", "bottleneck")
CHOSEN_BY = ("classification", "multi_label")
"""Tasks whose student is chosen from candidates."""
SMALL_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("repvgg:repvgg", {"alpha": 0.125, "top": 0.25, "reduction": 8}),
    ("mobilenet_v4:mobilenet_v4_small", {"alpha": 0.25, "last": 128, "reduction": 8}),
)
"""At few pixels a depthwise network takes longer than its multiply-adds say: docs/explanation/distillation.md."""
LARGE_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mobilenet_v3:mobilenet_v3_small", {"alpha": 0.35, "last": 128, "reduction": 16}),
    ("mcunet:mcunet", {"alpha": 0.5, "reduction": 16}),
)
OTHERS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "audio": (("bc_resnet:bc_resnet", {"alpha": 1.0}),),
    "window": (("tc_resnet:tc_resnet", {"alpha": 0.5}),),
}


def network_pair(task: str, kind: str, shape: tuple[int, ...]) -> tuple[Network, Network]:
    """The model and the student for raw samples of this shape; DataError where edgekit has no network for them."""
    name, kwargs = _reference_network(task, kind, shape)
    if task == "embedding":
        kwargs = {**kwargs, "dimensions": embedding.DIMENSIONS}
    student = {key: value // 2 if key in HALVED else value for key, value in kwargs.items()}
    builder = f"edgekit.models.{name}"
    return {"builder": builder, "kwargs": kwargs}, {"builder": builder, "kwargs": student}


def network_candidates(task: str, kind: str, shape: tuple[int, ...]) -> list[Network]:
    """Networks to choose the student from beside that of `pair`; none where that is the only one."""
    if task not in CHOSEN_BY:
        return []
    found = OTHERS.get(kind, ())
    if kind == "image" and min(shape[:2]) >= SMALLEST_FOR_OTHERS:
        found = LARGE_PICTURES if min(shape[:2]) >= LARGE else SMALL_PICTURES
    return [{"builder": f"edgekit.models.{name}", "kwargs": dict(kwargs)} for name, kwargs in found]


def _reference_network(task: str, kind: str, shape: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    if task in STRIDES and any(side % STRIDES[task] for side in shape[:2]):
        raise DataError(
            f"--data: pictures of {shape[0]}×{shape[1]}; the networks for {task} need height and width that are "
            f"multiples of {STRIDES[task]}: resize or pad pictures and labels, or write the config by hand, with your "
            "own model"
        )
    if task == "detection":
        return "detector:detector", {"width": 16, "depth": 2}
    if task == "segmentation":
        return "segmenter:segmenter", {"width": 16, "depth": 1}
    if task == "anomaly" and kind == "image":
        return "conv_autoencoder:conv_autoencoder", {"width": 16, "bottleneck": 4}
    if task == "anomaly":  # whatever it is, to be given back
        return "autoencoder:autoencoder", {"width": 64, "bottleneck": 8}
    if kind == "vector":
        return "mlp:mlp", {"width": 64, "depth": 2}
    if kind == "image":
        side = min(shape[:2])
        if side >= SMALLEST_FOR_RESNET:
            return "resnet:resnet8", {"width": 16, "stem_stride": 2 if side >= LARGE else 1}
        return "ds_cnn:ds_cnn", {"width": 64, "blocks": 4, "stem_stride": 1}
    if kind == "audio":
        return "ds_cnn:ds_cnn", {"width": 64, "blocks": 4, "stem_stride": 2}
    if kind == "window":
        return "conv1d:conv1d", {"width": 16}
    if kind == "tensors":
        return "joint:joint", {"width": 16}
    if kind == "text":
        return "text_transformer:text_transformer", {"width": 64, "layers": 2, "heads": 4}
    raise DataError(f"no reference network for samples of kind {kind!r}; write the config by hand, with your own model")


Step = dict[str, Any]
CHUNK = 1024
MOST_SOUNDS = 256
"""Sounds whose spectrograms are measured: each is expensive, and so many suffice for the mean."""
MOST_FEATURES = 128
"""Beyond, one mean and one deviation for all: nobody reads a config with a thousand numbers."""
WINDOW_S, MELS, FFT_SAMPLES, MOST_FRAMES = 0.03, 40, 512, 200


def measured_steps(data: Data) -> list[tuple[Step, str]]:
    """The steps in order, each with what a reader should know of it."""
    if data.kind in ("text", "tensors"):  # token ids are names; a network of several inputs scales each by itself
        return []
    found: list[tuple[Step, str]] = []
    by, together = "by feature", False
    if data.kind == "image":
        found, by = [({"step": "scale", "factor": 1 / 255}, "1/255: bytes to 0..1")], "by channel"
    elif data.kind == "audio":
        samples, rate_hz = data.raw_shape[0], int(data.sample_rate_hz or 0)
        found = [(log_mel(samples, rate_hz), "(frames, mels, 1): a picture of the sound")]
        by, together = "of all", True
    elif data.kind != "vector":
        by = "by channel"
    if data.kind == "vector" and data.raw_shape[0] > MOST_FEATURES:
        by, together = "of all features together", True
    x = data.train.x if data.kind != "audio" else data.train.x[:MOST_SOUNDS]
    mean, std = _moments(x, [step for step, _ in found], together=together)
    steps = {"step": "normalize", "mean": mean, "std": std}
    return [*found, (steps, f"of the train split, {by}")]


def log_mel(samples: int, rate_hz: int) -> Step:
    """Windows of 30 ms, a third of it overlapping; shorter for short sounds, further apart in long ones."""
    longest = round(WINDOW_S * rate_hz)
    window = max(1, min(longest, samples // 4))
    return {
        "step": "log_mel",
        "rate_hz": rate_hz,
        "window_samples": window,
        "hop_samples": max(1, round(2 * window / 3), math.ceil(samples / MOST_FRAMES)),
        "fft_samples": max(FFT_SAMPLES, 1 << (longest - 1).bit_length()),
        "mels": MELS,
        "low_hz": 20.0,
        "high_hz": min(8000.0, rate_hz / 2),
        "floor": 1e-6,
    }


def _moments(x: np.ndarray, steps: list[Step], together: bool) -> tuple[list[float], list[float]]:
    """Mean and deviation over all but the last axis, in double precision; 1 for the deviation of what never varies."""
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for part in _parts(x, steps, together):
        count += len(part)
        total = total + part.sum(axis=0)
    mean = total / count
    for part in _parts(x, steps, together):
        squares = squares + ((part - mean) ** 2).sum(axis=0)
    std = np.sqrt(squares / count)
    std = np.where(std > 1e-6 * np.maximum(np.abs(mean), 1e-20), std, 1.0)
    pairs = [_rounded(*pair) for pair in zip(mean.tolist(), std.tolist(), strict=True)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _parts(x: np.ndarray, steps: list[Step], together: bool) -> Iterator[np.ndarray]:
    for start in range(0, len(x), CHUNK):
        values = transform.apply(steps, x[start : start + CHUNK]).astype(np.float64)
        yield values.reshape(-1, 1 if together else values.shape[-1])


def _rounded(mean: float, std: float) -> tuple[float, float]:
    """Both to a thousandth of the deviation: more would be noise."""
    digits = 3 - math.floor(math.log10(std))
    return round(mean, digits), round(std, digits)
