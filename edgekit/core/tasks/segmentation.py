"""A class for each pixel of a picture; accuracy is the mean over the classes of the intersection over union.

Labels are (n, height, width) uint8: for each pixel of the sample the place of its class, and 255 where none is known.
Such pixels count for nothing. Outputs are (n, classes, rows, columns), as `edgekit/runner/masks.py` has them.

The measure is that of PASCAL VOC (Everingham et al., IJCV 2010, and its segmentation challenges). The pixels of all
pictures are counted together: of a class, those that are rightly said, by those that are labelled or said. Classes
without a labelled pixel do not count.
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
"""Of the cells of two answers, the share that must be of the same class for the answers to be the same."""
MIN_CORRECT_PIXELS = 0.9
"""Of a picture's labelled pixels, the share that must be right for its answer to be right."""
MAX_LISTED_CLASSES = 3
"""Classes that are told of a picture."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Of labels (n, height, width): "0", "1", …"""
    known = y[y != UNKNOWN]
    return tuple(str(index) for index in range(1 + int(known.max() if known.size else 0)))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """(n, height, width) uint8."""
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
    """Every class must have a pixel in this split."""
    found = set(np.unique(y).tolist())
    missing = [title for index, title in enumerate(names) if index not in found]
    if missing:
        raise DataError(
            f"{name}: no pixel of class {quote_names(missing)} ({UNKNOWN} in a mask means that none is known); "
            "add pictures, raise data.limit, or remove the class"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """A picture counts for the rarest class in it; 0: nothing is labelled."""
    classes = 1 + int(np.where(y == UNKNOWN, 0, y).max())
    there = np.stack([(y == kind).any(axis=(1, 2)) for kind in range(classes)], axis=1)
    rarest_first = np.argsort(there.sum(axis=0), kind="stable")
    ranked = there[:, rarest_first]
    return np.where(ranked.any(axis=1), rarest_first[ranked.argmax(axis=1)] + 1, 0).astype(np.int64)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """(n, 3 · classes): of each class the pixels that are rightly said, that are labelled, and that are said."""
    said, classes = answers(outputs, inputs), outputs.shape[1]
    values = [_counts(_confusion(*pair, classes)) for pair in zip(said, y, strict=True)]
    return SampleScores("segmentation", np.stack(values).astype(np.float64))


def accuracy(marks: SampleScores) -> float:
    """Mean intersection over union."""
    return float(mean_intersection_over_union(marks.values, np.ones((1, len(marks))))[0])


def drop(reference: SampleScores, marks: SampleScores, confidence: float) -> Drop:
    """By the bootstrap over pictures; `lost` are pictures with fewer pixels that are right."""
    hits = [each.values[:, : each.values.shape[1] // 3].sum(axis=1) for each in (reference, marks)]
    worse = np.sign(hits[0] - hits[1])
    return bootstrap_drop(reference.values, marks.values, mean_intersection_over_union, worse, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Where nine of ten cells are of the same class."""
    alike = reference.argmax(axis=1) == outputs.argmax(axis=1)
    return np.asarray(alike.mean(axis=(1, 2)) >= MIN_EQUAL_CELLS)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Of one class everywhere: its share of the pixels, by the number of classes."""
    counts = np.bincount(y[y != UNKNOWN], minlength=1)
    return float(counts.max() / max(1, counts.sum()) / max(1, (counts > 0).sum())), "always naming one class"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """(n, rows, columns) uint8: the class of each cell."""
    return outputs.argmax(axis=1).astype(np.uint8)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where nine of ten labelled pixels are of their class."""
    return np.asarray(closeness(answers, y) >= MIN_CORRECT_PIXELS)


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,): of each picture the share of its labelled pixels that are of their class; 1 where none is labelled."""
    pairs = ((_pixels(said, wanted) == wanted, wanted != UNKNOWN) for said, wanted in zip(answers, y, strict=True))
    return np.array([(hit & known).sum() / known.sum() if known.any() else 1.0 for hit, known in pairs])


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """The classes, each with its intersection over union; samples are labelled pixels."""
    confusion = sum(_confusion(*pair, len(names)) for pair in zip(answers, y, strict=True))
    hit, labelled, said = _counts(np.asarray(confusion)).reshape(3, len(names))
    found = []
    for name, both, there, all_said in zip(names, hit.tolist(), labelled.tolist(), said.tolist(), strict=True):
        score = both / (there + all_said - both) if there else None
        found.append(Group(name, there, score, both, all_said - both))
    return found


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """The largest classes and their shares of the picture."""
    return [describe_mask(answer, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """The same of the labels."""
    return describe_answers(y, y, names)


def describe_mask(mask: np.ndarray, names: Sequence[str]) -> str:
    """Of one mask."""
    known = mask[mask != UNKNOWN]
    counts = np.bincount(known, minlength=len(names))
    largest = [place for place in np.argsort(-counts, kind="stable")[:MAX_LISTED_CLASSES].tolist() if counts[place]]
    return ", ".join(f"{counts[place] / known.size:.0%} {names[place]}" for place in largest) or "nothing"


def mean_intersection_over_union(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(draws,) of marks (n, 3 · classes) for weights (draws, n)."""
    hit, labelled, said = np.split(weights @ values, 3, axis=1)
    there = labelled > 0
    shares = np.where(there, hit / np.maximum(labelled + said - hit, 1), 0)
    found: np.ndarray = shares.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return found


def _confusion(said: np.ndarray, wanted: np.ndarray, classes: int) -> np.ndarray:
    """(classes, classes): how many pixels of each class (rows) are said to be of which; of one picture."""
    known = wanted != UNKNOWN
    code = wanted[known].astype(np.int64) * classes + _pixels(said, wanted)[known]
    return np.bincount(code, minlength=classes**2).reshape(classes, classes)


def _counts(confusion: np.ndarray) -> np.ndarray:
    return np.concatenate([confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)])


def _pixels(cells: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return enlarge(cells, cell_size(wanted.shape, cells.shape))
