"""The batches of a training, which depend only on the data, the options and the state of a random generator."""

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
from edgekit.training.predict import Inputs, aligned_copy

if TYPE_CHECKING:
    from edgekit.data import Data

SHIFT_FRACTION = 1 / 8
MIN_VISIBLE = 0.4
"""Fraction of a box that must stay inside the image after a shift; otherwise the box is dropped."""


def augment(images: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """Augment images (N, H, W, C) by `none`, `shift` or `shift_flip`.

    A shift moves each image by up to an eighth of each side and fills with zeros; a flip mirrors it left to right.
    """
    if kind == "none":
        return images
    shifted = shift(images, random)
    return mirror(shifted, random) if kind == "shift_flip" else shifted


def augment_windows(windows: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """Augment windows (N, T, C) by `none` or `shift`, which moves each window by up to an eighth of its length.

    Raises ConfigError for `shift_flip`, because a mirrored window is not a valid sample of every sensor: a movement
    that is played backwards, or with reversed axes, is another movement.
    """
    if kind == "shift_flip":
        raise ConfigError(
            "augment: got 'shift_flip', but the samples are windows, and time would run backwards in a mirrored one; "
            "use shift"
        )
    return windows if kind == "none" else shift_in_time(windows, random)


def shift_in_time(windows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Shift each window in time by a random number of steps, and repeat its first or last value at the edge.

    Filling the edge with zeros, as in images, would look like a movement, because a sensor at rest may show 9.81.
    """
    count, time = windows.shape[:2]
    max_shift = round(time * SHIFT_FRACTION)
    offsets = random.integers(-max_shift, max_shift + 1, count)
    indices = np.clip(np.arange(time) - offsets[:, None], 0, time - 1)
    return np.take_along_axis(windows, indices[:, :, None], axis=1)


def shift(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Shift each image by a random whole number of pixels."""
    count, height, width = images.shape[:3]
    down, right = round(height * SHIFT_FRACTION), round(width * SHIFT_FRACTION)
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    rows, columns = random.integers(0, 2 * down + 1, count), random.integers(0, 2 * right + 1, count)
    return np.ascontiguousarray(windows[np.arange(count), rows, columns].transpose(0, 2, 3, 1))


def augment_boxes(
    images: np.ndarray, labels: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Augment images with boxes, labels (N, 1 + most, 5), as `augment` does.

    `most` is the largest number of boxes in an image. Boxes of which less than `MIN_VISIBLE` stays inside the image are
    dropped.
    """
    if kind == "none":
        return images, labels
    height, width = images.shape[1:3]
    down, right = _shifts(images, random)
    shifted = _shift_each(images, down, right)
    labels = _moved_boxes(labels, right, down, width, height)
    if kind == "shift_flip":
        is_mirrored = random.random(len(images)) < 0.5
        shifted = np.where(is_mirrored[:, None, None, None], shifted[:, :, ::-1], shifted)
        mirrored = labels.copy()
        mirrored[:, 1:, 1], mirrored[:, 1:, 3] = width - labels[:, 1:, 3], width - labels[:, 1:, 1]
        labels = np.where(is_mirrored[:, None, None], mirrored, labels)
    return shifted, labels


def augment_masks(
    images: np.ndarray, masks: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Augment images with masks (N, H, W), as `augment` does. Pixels uncovered by a shift have no class."""
    if kind == "none":
        return images, masks
    down, right = _shifts(images, random)
    images, masks = _shift_each(images, down, right), _shift_each(masks, down, right, UNKNOWN)
    if kind == "shift_flip":
        is_mirrored = random.random(len(images)) < 0.5
        images = np.where(is_mirrored[:, None, None, None], images[:, :, ::-1], images)
        masks = np.where(is_mirrored[:, None, None], masks[:, :, ::-1], masks)
    return images, masks


def _shifts(images: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the shift of each image in whole pixels, down and to the right."""
    down, right = (
        random.integers(-round(side * SHIFT_FRACTION), round(side * SHIFT_FRACTION) + 1, len(images))
        for side in images.shape[1:3]
    )
    return down, right


def _shift_each(arrays: np.ndarray, down: np.ndarray, right: np.ndarray, fill: int = 0) -> np.ndarray:
    """Shift each array of (N, H, W, …) by its own numbers of pixels."""
    height, width = arrays.shape[1:3]
    shifted = np.full_like(arrays, fill)
    for array, target, y, x in zip(arrays, shifted, down, right, strict=True):
        target_area = np.s_[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)]
        source_area = np.s_[max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)]
        target[target_area] = array[source_area]
    return shifted


def _moved_boxes(labels: np.ndarray, right: np.ndarray, down: np.ndarray, width: int, height: int) -> np.ndarray:
    moved, limits = labels.copy(), np.array([width, height, width, height], dtype=labels.dtype)
    offsets = np.stack([right, down, right, down], axis=1).astype(labels.dtype)
    before = labels[:, 1:, 1:]
    after = np.clip(before + offsets[:, None], 0, limits)
    visible_shares = _area(after) / np.maximum(_area(before), 1e-6)
    moved[:, 1:, 1:] = after
    moved[:, 1:, 0] = np.where(visible_shares >= MIN_VISIBLE, labels[:, 1:, 0], -1)
    return moved


def _area(sides: np.ndarray) -> np.ndarray:
    area: np.ndarray = (sides[..., 2] - sides[..., 0]) * (sides[..., 3] - sides[..., 1])
    return area


def mirror(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Mirror each image left to right with a probability of one half."""
    is_mirrored = random.random(len(images)) < 0.5
    return np.where(is_mirrored[:, None, None, None], images[:, :, ::-1], images)


class Chain:
    """Applies augmentations in order. If one of them mixes samples, all labels become soft labels."""

    def __init__(self, options: Sequence[AugmentationOptions], classes: int) -> None:
        self.steps = [(augmentations.function(each), each) for each in options]
        self.mixes = any(augmentations.mixes_samples(each) for each in options)
        self.classes = classes

    def __call__(
        self, samples: np.ndarray, labels: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the augmented samples (n, *sample) and their labels, which are soft (n, classes) if samples are mixed.

        A soft label is the mean of both samples' labels, weighted by how much of each sample is in the mix (Zhang et
        al. 2018, equation 2). The samples keep their type; soft labels are float32.
        """
        if self.mixes:
            labels = self._soft(labels)
        for apply, options in self.steps:
            samples, mix = apply(samples, options, random)
            if mix is not None:
                weights: np.ndarray = mix.own_shares[:, None].astype(np.float32)
                labels = weights * labels + (1 - weights) * labels[mix.partners]
        return samples, labels

    def _soft(self, labels: np.ndarray) -> np.ndarray:
        """Return classes (n,) as one-hot rows (n, classes); multi-label rows stay as they are."""
        if labels.ndim == 2:
            return labels.astype(np.float32)
        one_hot: np.ndarray = np.eye(self.classes, dtype=np.float32)[labels]
        return one_hot


def epoch(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches of one epoch in a new order: augmented raw samples (n, *sample), and labels (n,).

    If samples are mixed, the labels are soft: (n, classes) float32. A copy of `random` gives the same batches, so that
    a teacher can compute its outputs in advance.
    """
    train, chain = data.train, Chain(augmentations.active(options.augmentations, data), len(data.classes))
    for indices in _orders(data, options, random):
        raw, labels = train.x[indices], train.y[indices]
        if data.task == "detection":
            raw, labels = augment_boxes(raw, labels, options.augment, random)
        elif data.task == "segmentation":
            raw, labels = augment_masks(raw, labels, options.augment, random)
        elif data.kind == "image":
            raw = augment(raw, options.augment, random)
        elif data.kind == "window":
            raw = augment_windows(raw, options.augment, random)
        yield chain(raw, labels, random)


class BatchPreparer:
    """Yields the batches of `epoch` with preprocessed samples.

    Without augmentation, each sample is preprocessed only once.
    """

    def __init__(self, data: Data, options: TrainOptions, preprocess: list[dict[str, Any]]) -> None:
        self.data, self.options, self.transform = data, options, pipeline(preprocess)
        self.inputs = None if _augments(data, options) else Inputs(data.train.x, preprocess)

    def epoch(self, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the batches of an epoch: inputs (n, *input), images with channels last, and labels (n, …)."""
        if self.inputs is None:
            for raw, labels in epoch(self.data, self.options, random):
                yield aligned_copy(self.transform(raw)), labels
            return
        for indices in _orders(self.data, self.options, random):
            yield aligned_copy(self.inputs.take(indices)), self.data.train.y[indices]


def _augments(data: Data, options: TrainOptions) -> bool:
    """Return whether samples may differ between epochs. `augment` has no effect on audio, texts and vectors."""
    changes = data.task in ("detection", "segmentation") or data.kind in ("image", "window")
    return bool(augmentations.active(options.augmentations, data)) or (changes and options.augment != "none")


def _orders(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of the samples of each batch."""
    order = random.permutation(len(data.train.y))
    for part in batch_slices(len(order), options.batch_size):
        yield order[part]


def batch_slices(samples: int, size: int) -> list[slice]:
    """Return slices of `size`. A last batch of one sample is left out, because batch norms need at least two."""
    slices = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return slices if samples % size != 1 or len(slices) == 1 else slices[:-1]


Item = TypeVar("Item")


def prepare_in_thread(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the same items in the same order, preparing the next one in a thread while the current one is used.

    This saves time because NumPy and the disk release the interpreter's lock while they work. An exception of `items`
    is raised here in place of its item. Close the generator if you leave it early, so that nothing more is prepared.
    """
    end = object()
    with ThreadPoolExecutor(1, "batches") as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
