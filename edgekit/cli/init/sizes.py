"""Choices that suit the size and kind of the data: networks, preprocessing, batch size, epochs and budget."""

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
"""The default of `budget.accuracy_confidence`."""
TRAINING_STEPS = 600
"""Number of optimizer steps after which a small network has learned most of what it can."""
LOOSE_BUDGET_PP, USUAL_BUDGET_PP = 15.0, 5.0
"""A budget above the first value hardly limits anything. Data for a first run should allow a budget of the second."""
MAX_LOST_SHARE = 0.01
"""Share of the validation samples that a variant may lose in a first run."""


@dataclass(frozen=True)
class SplitSizes:
    """The sizes of the splits after all options, and choices derived from them.

    `least_batch` is the smallest batch size.
    """

    train: int
    calibration: int
    validation: int
    test: int
    least_batch: int = 2

    @property
    def batch(self) -> int:
        """A power of two, about a twentieth of the train split. At most the whole split, but at least `least_batch`."""
        largest = max(2, 1 << (self.train.bit_length() - 1))
        return max(self.least_batch, min(largest, max(8, min(128, 1 << max(1, self.train // 20).bit_length() - 1))))

    @property
    def epochs(self) -> int:
        """Enough epochs for some hundred steps, but fewer for large data sets."""
        return int(min(60, max(8, round(TRAINING_STEPS / math.ceil(self.train / self.batch)))))

    @property
    def lost(self) -> int:
        """Number of validation samples that a variant may answer wrongly although the baseline is right."""
        return max(1, round(MAX_LOST_SHARE * self.validation))

    @property
    def drop_pp(self) -> float:
        """The upper bound of the accuracy drop if `lost` samples are lost, rounded up: a budget that can be met."""
        bound_pp = accuracy_drop.drop_of_counts(self.lost, 0, self.validation, CONFIDENCE).bound_pp
        step = 10 if bound_pp < 2 else 2
        return min(100.0, math.ceil(step * bound_pp) / step)


def small_validation_warning(sizes: SplitSizes) -> str:
    """Return advice if there are so few validation samples that nearly every variant meets the budget, or nothing."""
    if sizes.drop_pp <= LOOSE_BUDGET_PP:
        return ""
    sufficient = next(n for n in range(10, 10_000, 10) if SplitSizes(1, 1, n, 1).drop_pp <= USUAL_BUDGET_PP)
    noun = "sample shows" if sizes.validation == 1 else "samples show"
    return (
        f"{sizes.validation} validation {noun} no drop below {sizes.drop_pp:g} pp, so the budget excludes hardly "
        f"anything; {sufficient} would show {USUAL_BUDGET_PP:g} pp: give more data, or a larger validation split"
    )


STRIDES = {"detection": 16, "segmentation": 16}
"""Stride of each network's coarsest map in pixels, copied from `STRIDE` because importing it would import torch."""
Network = dict[str, Any]
PLACEHOLDER_BUILDER = "edgekit.models.resnet:resnet8"
"""A network for configs that must name a network before the data are known."""
SMALLEST_FOR_RESNET = 16
LARGE_PICTURE = 64
"""From this side on, the first convolution halves the picture, as in networks for photographs."""
SMALLEST_FOR_OTHERS = 32
"""From this side on, the feature maps of the candidates are large enough."""
HALVED_ARGUMENTS = ("width", "bottleneck")
CANDIDATE_TASKS = ("classification", "multi_label")
"""Tasks whose student is chosen from candidates."""
SMALL_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("repvgg:repvgg", {"alpha": 0.125, "top": 0.25, "reduction": 8}),
    ("mobilenet_v4:mobilenet_v4_small", {"alpha": 0.25, "last": 128, "reduction": 8}),
)
"""On small pictures a depthwise network is slower than its multiply-adds suggest: docs/explanation/distillation.md."""
LARGE_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mobilenet_v3:mobilenet_v3_small", {"alpha": 0.35, "last": 128, "reduction": 16}),
    ("mcunet:mcunet", {"alpha": 0.5, "reduction": 16}),
)
OTHER_CANDIDATES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "audio": (("bc_resnet:bc_resnet", {"alpha": 1.0}),),
    "window": (("tc_resnet:tc_resnet", {"alpha": 0.5}),),
}


def network_pair(task: str, kind: str, shape: tuple[int, ...]) -> tuple[Network, Network]:
    """Return the model and the student for raw samples of this shape.

    Raises
    ------
    DataError
        edgekit has no network for them.
    """
    name, kwargs = _reference_network(task, kind, shape)
    if task == "embedding":
        kwargs = {**kwargs, "dimensions": embedding.DIMENSIONS}
    student = {key: value // 2 if key in HALVED_ARGUMENTS else value for key, value in kwargs.items()}
    builder = f"edgekit.models.{name}"
    return {"builder": builder, "kwargs": kwargs}, {"builder": builder, "kwargs": student}


def network_candidates(task: str, kind: str, shape: tuple[int, ...]) -> list[Network]:
    """Return further networks to choose the student from, in addition to that of `network_pair`, or none."""
    if task not in CANDIDATE_TASKS:
        return []
    candidates = OTHER_CANDIDATES.get(kind, ())
    if kind == "image" and min(shape[:2]) >= SMALLEST_FOR_OTHERS:
        candidates = LARGE_PICTURES if min(shape[:2]) >= LARGE_PICTURE else SMALL_PICTURES
    return [{"builder": f"edgekit.models.{name}", "kwargs": dict(kwargs)} for name, kwargs in candidates]


def _reference_network(task: str, kind: str, shape: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    if task in STRIDES and any(shortest_side % STRIDES[task] for shortest_side in shape[:2]):
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
    if task == "anomaly":  # for every kind but images, an autoencoder of dense layers
        return "autoencoder:autoencoder", {"width": 64, "bottleneck": 8}
    if kind == "vector":
        return "mlp:mlp", {"width": 64, "depth": 2}
    if kind == "image":
        shortest_side = min(shape[:2])
        if shortest_side >= SMALLEST_FOR_RESNET:
            return "resnet:resnet8", {"width": 16, "stem_stride": 2 if shortest_side >= LARGE_PICTURE else 1}
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
MAX_SOUNDS = 256
"""Largest number of sounds whose spectrograms are used for the mean and deviation. Each takes long to compute."""
MAX_FEATURES = 128
"""With more features than this, one mean and deviation is used for all, to keep the config readable."""
WINDOW_S, MELS, FFT_SAMPLES, MOST_FRAMES = 0.03, 40, 512, 200


def measured_steps(data: Data) -> list[tuple[Step, str]]:
    """Return the preprocessing steps in order, each with a comment for the config."""
    if data.kind in ("text", "tensors"):  # token ids are names, and a network with several inputs scales them itself
        return []
    steps_so_far: list[tuple[Step, str]] = []
    grouping, together = "by feature", False
    if data.kind == "image":
        steps_so_far, grouping = [({"step": "scale", "factor": 1 / 255}, "1/255: bytes to 0..1")], "by channel"
    elif data.kind == "audio":
        samples, rate_hz = data.raw_shape[0], int(data.sample_rate_hz or 0)
        steps_so_far = [(log_mel(samples, rate_hz), "(frames, mels, 1): a picture of the sound")]
        grouping, together = "of all", True
    elif data.kind != "vector":
        grouping = "by channel"
    if data.kind == "vector" and data.raw_shape[0] > MAX_FEATURES:
        grouping, together = "of all features together", True
    x = data.train.x if data.kind != "audio" else data.train.x[:MAX_SOUNDS]
    mean, std = moments(x, [step for step, _ in steps_so_far], together=together)
    steps = {"step": "normalize", "mean": mean, "std": std}
    return [*steps_so_far, (steps, f"of the train split, {grouping}")]


def log_mel(samples: int, rate_hz: int) -> Step:
    """Return a log_mel step with overlapping windows of 30 ms.

    Short sounds get shorter windows. In long sounds, the windows lie further apart, so that there are not too many.
    """
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


def moments(x: np.ndarray, steps: list[Step], together: bool) -> tuple[list[float], list[float]]:
    """Return mean and deviation over all but the last axis in double precision; constant features have deviation 1."""
    count, total, square_sum = 0, np.zeros(1), np.zeros(1)
    for chunk in _chunks(x, steps, together):
        count += len(chunk)
        total = total + chunk.sum(axis=0)
    mean = total / count
    for chunk in _chunks(x, steps, together):
        square_sum = square_sum + ((chunk - mean) ** 2).sum(axis=0)
    std = np.sqrt(square_sum / count)
    std = np.where(std > 1e-6 * np.maximum(np.abs(mean), 1e-20), std, 1.0)
    pairs = [_rounded(*pair) for pair in zip(mean.tolist(), std.tolist(), strict=True)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _chunks(x: np.ndarray, steps: list[Step], together: bool) -> Iterator[np.ndarray]:
    for start in range(0, len(x), CHUNK):
        values = transform.apply(steps, x[start : start + CHUNK]).astype(np.float64)
        yield values.reshape(-1, 1 if together else values.shape[-1])


def _rounded(mean: float, std: float) -> tuple[float, float]:
    """Round mean and deviation to a thousandth of the deviation, because more digits would be noise."""
    digits = 3 - math.floor(math.log10(std))
    return round(mean, digits), round(std, digits)
