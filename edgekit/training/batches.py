"""The batches that a training sees, in order: a function of the data, its options and a generator's state."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from edgekit.core.config import TrainOptions
from edgekit.core.errors import ConfigError
from edgekit.runner.masks import UNKNOWN
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training import augmentations
from edgekit.training.augmentations import AugmentationOptions
from edgekit.training.predict import Inputs, placed

if TYPE_CHECKING:
    from edgekit.data import Data

SHIFT_FRACTION = 1 / 8
LEAST_LEFT = 0.4
"""Of a box that a shift moves over the edge."""


def augment(images: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """`none`, `shift` (up to an eighth of each side, filled with zeros) or `shift_flip` (and left-right mirrors)."""
    if kind == "none":
        return images
    shifted = shift(images, random)
    return mirror(shifted, random) if kind == "shift_flip" else shifted


def augment_windows(windows: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """`none` or `shift` (up to an eighth of the time either way); ConfigError for `shift_flip`.

    A recording of a walk played backwards is no walk, and neither is one whose axes point the other way. No mirror
    image of a window is valid for every sensor.
    """
    if kind == "shift_flip":
        raise ConfigError(
            "augment: got 'shift_flip', and the samples are windows: mirrored, time would run backwards; use shift"
        )
    return windows if kind == "none" else shift_in_time(windows, random)


def shift_in_time(windows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each window moved by its own number of moments; the first or last moment stands where it has none.

    Not zeros, as with images: a sensor at rest may well show 9.81, and a jump from there to 0 is a movement.
    """
    count, time = windows.shape[:2]
    most = round(time * SHIFT_FRACTION)
    later = random.integers(-most, most + 1, count)
    places = np.clip(np.arange(time) - later[:, None], 0, time - 1)
    return np.take_along_axis(windows, places[:, :, None], axis=1)


def shift(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image moved by its own whole number of pixels."""
    count, height, width = images.shape[:3]
    down, right = round(height * SHIFT_FRACTION), round(width * SHIFT_FRACTION)
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    rows, columns = random.integers(0, 2 * down + 1, count), random.integers(0, 2 * right + 1, count)
    return np.ascontiguousarray(windows[np.arange(count), rows, columns].transpose(0, 2, 3, 1))


def augment_boxes(
    images: np.ndarray, labels: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As `augment`, the labels (N, 1 + most, 5) of a detection with them; a box of which too little is left goes."""
    if kind == "none":
        return images, labels
    height, width = images.shape[1:3]
    down, right = _shifts(images, random)
    moved = _shifted(images, down, right)
    labels = _moved(labels, right, down, width, height)
    if kind == "shift_flip":
        chosen = random.random(len(images)) < 0.5
        moved = np.where(chosen[:, None, None, None], moved[:, :, ::-1], moved)
        mirrored = labels.copy()
        mirrored[:, 1:, 1], mirrored[:, 1:, 3] = width - labels[:, 1:, 3], width - labels[:, 1:, 1]
        labels = np.where(chosen[:, None, None], mirrored, labels)
    return moved, labels


def augment_masks(
    images: np.ndarray, masks: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As `augment`, the masks (N, H, W) of a segmentation with them; what a shift uncovers is of no class."""
    if kind == "none":
        return images, masks
    down, right = _shifts(images, random)
    images, masks = _shifted(images, down, right), _shifted(masks, down, right, UNKNOWN)
    if kind == "shift_flip":
        chosen = random.random(len(images)) < 0.5
        images = np.where(chosen[:, None, None, None], images[:, :, ::-1], images)
        masks = np.where(chosen[:, None, None], masks[:, :, ::-1], masks)
    return images, masks


def _shifts(images: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of pixels, down and to the right, for each image."""
    down, right = (
        random.integers(-round(side * SHIFT_FRACTION), round(side * SHIFT_FRACTION) + 1, len(images))
        for side in images.shape[1:3]
    )
    return down, right


def _shifted(arrays: np.ndarray, down: np.ndarray, right: np.ndarray, fill: int = 0) -> np.ndarray:
    """(N, H, W, …), each moved by its own numbers of pixels."""
    height, width = arrays.shape[1:3]
    moved = np.full_like(arrays, fill)
    for array, target, y, x in zip(arrays, moved, down, right, strict=True):
        into = np.s_[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)]
        out_of = np.s_[max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)]
        target[into] = array[out_of]
    return moved


def _moved(labels: np.ndarray, right: np.ndarray, down: np.ndarray, width: int, height: int) -> np.ndarray:
    moved, limits = labels.copy(), np.array([width, height, width, height], dtype=labels.dtype)
    by = np.stack([right, down, right, down], axis=1).astype(labels.dtype)
    before = labels[:, 1:, 1:]
    after = np.clip(before + by[:, None], 0, limits)
    shares = _area(after) / np.maximum(_area(before), 1e-6)
    moved[:, 1:, 1:] = after
    moved[:, 1:, 0] = np.where(shares >= LEAST_LEFT, labels[:, 1:, 0], -1)
    return moved


def _area(sides: np.ndarray) -> np.ndarray:
    found: np.ndarray = (sides[..., 2] - sides[..., 0]) * (sides[..., 3] - sides[..., 1])
    return found


def mirror(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image mirrored left to right, or not."""
    chosen = random.random(len(images)) < 0.5
    return np.where(chosen[:, None, None, None], images[:, :, ::-1], images)


class Chain:
    """Applies them in their order. Where one of them mixes samples, all labels become soft ones."""

    def __init__(self, options: Sequence[AugmentationOptions], classes: int) -> None:
        self.steps = [(augmentations.function(each), each) for each in options]
        self.mixes = any(augmentations.mixes(each) for each in options)
        self.classes = classes

    def __call__(
        self, samples: np.ndarray, labels: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples (n, *sample) of the same type, and their labels: as they were, or (n, classes) float32 where mixed.

        Soft labels are the mean of both samples' labels by the share of each (Zhang et al. 2018, equation 2).
        """
        if self.mixes:
            labels = self._soft(labels)
        for apply, options in self.steps:
            samples, mix = apply(samples, options, random)
            if mix is not None:
                share: np.ndarray = mix.kept[:, None].astype(np.float32)
                labels = share * labels + (1 - share) * labels[mix.partners]
        return samples, labels

    def _soft(self, labels: np.ndarray) -> np.ndarray:
        """Classes (n,) as rows of 0 and 1; labels of several classes (n, classes) are such rows."""
        if labels.ndim == 2:
            return labels.astype(np.float32)
        found: np.ndarray = np.eye(self.classes, dtype=np.float32)[labels]
        return found


def epoch(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One pass over the train split in a fresh order: raw samples (n, *sample), augmented, and labels (n,).

    Where samples are mixed, the labels are soft: (n, classes) float32. A copy of `random` gives the same batches: so a
    teacher can answer before the student asks.
    """
    train, chain = data.train, Chain(augmentations.active(options.augmentations, data), len(data.classes))
    for chosen in _orders(data, options, random):
        raw, labels = train.x[chosen], train.y[chosen]
        if data.task == "detection":
            raw, labels = augment_boxes(raw, labels, options.augment, random)
        elif data.task == "segmentation":
            raw, labels = augment_masks(raw, labels, options.augment, random)
        elif data.kind == "image":
            raw = augment(raw, options.augment, random)
        elif data.kind == "window":
            raw = augment_windows(raw, options.augment, random)
        yield chain(raw, labels, random)


class Prepared:
    """The same batches, their samples preprocessed; where nothing augments them, that is done once."""

    def __init__(self, data: Data, options: TrainOptions, preprocess: list[dict[str, Any]]) -> None:
        self.data, self.options, self.transform = data, options, pipeline(preprocess)
        self.inputs = None if _augments(data, options) else Inputs(data.train.x, preprocess)

    def epoch(self, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs (n, *input) in the samples' order of axes, and labels (n, …)."""
        if self.inputs is None:
            for raw, labels in epoch(self.data, self.options, random):
                yield placed(self.transform(raw)), labels
            return
        for chosen in _orders(self.data, self.options, random):
            yield placed(self.inputs.take(chosen)), self.data.train.y[chosen]


def _augments(data: Data, options: TrainOptions) -> bool:
    """Whether a sample may look another way each time: sounds, texts and vectors never do."""
    changes = data.task in ("detection", "segmentation") or data.kind in ("image", "window")
    return bool(augmentations.active(options.augmentations, data)) or (changes and options.augment != "none")


def _orders(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[np.ndarray]:
    """The places of each batch's samples."""
    order = random.permutation(len(data.train.y))
    for part in parts(len(order), options.batch_size):
        yield order[part]


def parts(samples: int, size: int) -> list[slice]:
    """Slices of `size`; a last one of a single sample is left out, for batch normalisation has no variance of one."""
    found = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return found if samples % size != 1 or len(found) == 1 else found[:-1]


Item = TypeVar("Item")


def made_in_a_thread(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items in the same order; while one is used, the next is made in a thread.

    What `items` raises is raised here, in its place. Close what this returns where it is left before its end: then
    nothing is made any more.

    numpy and the disk let other threads of the process go on while they work.
    """
    end = object()
    with ThreadPoolExecutor(1, "batches") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
