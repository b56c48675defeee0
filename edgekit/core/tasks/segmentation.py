"""Predict a class for each pixel of a picture. Accuracy is the mean intersection over union of the classes.

Labels are (n, height, width) uint8: the class of each pixel of the sample, or 255 if it is not known. Such pixels do
not count. Outputs are (n, classes, rows, columns), as described in `edgekit/runner/masks.py`.

The metric is that of PASCAL VOC (Everingham et al., IJCV 2010, and its segmentation challenges). The pixels of all
pictures are counted together. The value of a class is the number of its pixels that are predicted correctly, divided by
the number of pixels that are labelled or predicted as this class. Classes without a labelled pixel do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop
from edgekit.core.tasks.labels import quote_names
from edgekit.runner.masks import UNKNOWN, cell_size, enlarge

METRIC = "mIoU"
METRIC_TEXT = (
    "accuracy is the mean over the classes of the intersection over union of their pixels, all pictures together"
)
OUTPUTS_NAME = "classes"
AT_MOST_ONE = False
RECONSTRUCTS = False
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "class", "IoU", True
CORRECT_WHEN = "nine of ten labelled pixels are of their class"

MAX_CLASSES = UNKNOWN
MIN_EQUAL_CELLS = 0.9
"""Two answers count as the same if at least this share of their cells have the same class."""
MIN_CORRECT_PIXELS = 0.9
"""An answer counts as correct if at least this share of the picture's labelled pixels is correct."""
MAX_LISTED_CLASSES = 3
"""Number of classes that are listed for a picture."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for labels (n, height, width): "0", "1", …"""
    labelled = y[y != UNKNOWN]
    return tuple(str(index) for index in range(1 + int(labelled.max() if labelled.size else 0)))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n, height, width) uint8."""
    if y.ndim != 3 or y.dtype.kind not in "iu":
        raise DataError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; a segmentation has whole numbers (n, height, width), "
            f"the class of each pixel, {UNKNOWN} where none is known"
        )
    if not 2 <= len(names) <= MAX_CLASSES:
        raise DataError(f"classes: got {len(names)}; a segmentation has 2 to {MAX_CLASSES}, the background among them")
    bad = ((y < 0) | (y >= len(names))) & (y != UNKNOWN)
    if bad.any():
        sample, row, column = np.argwhere(bad)[0]
        raise DataError(
            f"{name}: the pixel of sample {sample}, row {row}, column {column} is of class {y[sample, row, column]}; "
            f"number the classes 0 to {len(names) - 1}, and {UNKNOWN} for none"
        )
    return y.astype(np.uint8, copy=False)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that every class has a pixel in this split."""
    present = set(np.unique(y).tolist())
    missing = [title for index, title in enumerate(names) if index not in present]
    if missing:
        raise DataError(
            f"{name}: no pixel of class {quote_names(missing)} ({UNKNOWN} in a mask means that none is known); "
            "add pictures, raise data.limit, or remove the class"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the stratum of each picture, which is given by the rarest class in it; 0 if nothing is labelled."""
    classes = 1 + int(np.where(y == UNKNOWN, 0, y).max())
    has_class = np.stack([(y == kind).any(axis=(1, 2)) for kind in range(classes)], axis=1)
    rarest_first = np.argsort(has_class.sum(axis=0), kind="stable")
    ranked = has_class[:, rarest_first]
    return np.where(ranked.any(axis=1), rarest_first[ranked.argmax(axis=1)] + 1, 0).astype(np.int64)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return (n, 3 · classes): for each class the numbers of pixels predicted correctly, labelled, and predicted."""
    predicted, classes = answers(outputs, inputs), outputs.shape[1]
    values = [_counts(_confusion(*pair, classes)) for pair in zip(predicted, y, strict=True)]
    return SampleScores("segmentation", np.stack(values).astype(np.float64))


def accuracy(scores: SampleScores) -> float:
    """Return the mean intersection over union."""
    return float(mean_intersection_over_union(scores.values, np.ones((1, len(scores))))[0])


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop, estimated by a bootstrap over pictures.

    A picture is lost if it has fewer correct pixels than in the reference's answer.
    """
    hits = [each.values[:, : each.values.shape[1] // 3].sum(axis=1) for each in (reference, scores)]
    worse = np.sign(hits[0] - hits[1])
    return bootstrap_drop(reference.values, scores.values, mean_intersection_over_union, worse, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which pictures have the same class in nine of ten cells."""
    alike = reference.argmax(axis=1) == outputs.argmax(axis=1)
    return np.asarray(alike.mean(axis=(1, 2)) >= MIN_EQUAL_CELLS)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of always naming one class: its share of the pixels divided by the number of classes."""
    counts = np.bincount(y[y != UNKNOWN], minlength=1)
    return float(counts.max() / max(1, counts.sum()) / max(1, (counts > 0).sum())), "always naming one class"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the class of each cell, (n, rows, columns) uint8."""
    return outputs.argmax(axis=1).astype(np.uint8)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which pictures have the correct class in nine of ten labelled pixels."""
    return np.asarray(closeness(answers, y) >= MIN_CORRECT_PIXELS)


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the share of each picture's labelled pixels that are predicted correctly, (n,); 1 if none is labelled."""
    pairs = ((_pixels(answer, label) == label, label != UNKNOWN) for answer, label in zip(answers, y, strict=True))
    return np.array([(hit & labelled).sum() / labelled.sum() if labelled.any() else 1.0 for hit, labelled in pairs])


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the classes, each with its intersection over union. `samples` are labelled pixels here."""
    confusion = sum(_confusion(*pair, len(names)) for pair in zip(answers, y, strict=True))
    hit, labelled, predictions = _counts(np.asarray(confusion)).reshape(3, len(names))
    result = []
    for name, hits, labels, predicted in zip(names, hit.tolist(), labelled.tolist(), predictions.tolist(), strict=True):
        score = hits / (labels + predicted - hits) if labels else None
        result.append(Group(name, labels, score, hits, predicted - hits))
    return result


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the largest classes and their shares of the picture."""
    return [describe_mask(answer, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the same for the labels."""
    return describe_answers(y, y, names)


def describe_mask(mask: np.ndarray, names: Sequence[str]) -> str:
    """Return the largest classes of a mask with their shares, such as `62% road, 30% sky`."""
    labelled = mask[mask != UNKNOWN]
    counts = np.bincount(labelled, minlength=len(names))
    largest = [place for place in np.argsort(-counts, kind="stable")[:MAX_LISTED_CLASSES].tolist() if counts[place]]
    return ", ".join(f"{counts[place] / labelled.size:.0%} {names[place]}" for place in largest) or "nothing"


def mean_intersection_over_union(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean IoU, (draws,), of sample scores (n, 3 · classes) with weights (draws, n)."""
    hit, labelled, predicted = np.split(weights @ values, 3, axis=1)
    has_labels = labelled > 0
    shares = np.where(has_labels, hit / np.maximum(labelled + predicted - hit, 1), 0)
    means: np.ndarray = shares.sum(axis=1) / np.maximum(has_labels.sum(axis=1), 1)
    return means


def _confusion(answer: np.ndarray, label: np.ndarray, classes: int) -> np.ndarray:
    """Return (classes, classes): how many pixels of each class (rows) one picture's answer assigns to each class."""
    labelled = label != UNKNOWN
    code = label[labelled].astype(np.int64) * classes + _pixels(answer, label)[labelled]
    return np.bincount(code, minlength=classes**2).reshape(classes, classes)


def _counts(confusion: np.ndarray) -> np.ndarray:
    return np.concatenate([confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)])


def _pixels(cells: np.ndarray, label: np.ndarray) -> np.ndarray:
    return enlarge(cells, cell_size(label.shape, cells.shape))
