"""Tables of what the data are, before anything is learned of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.report.formatting import Table, count

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data import Data

FEATURES = 10


def samples(data: Data) -> Table:
    """Twelve vectors of the train split with their labels, every class in turn; their first features."""
    from edgekit.report.plots.samples import in_turn, named

    train = data.train
    more = train.x.shape[1] - FEATURES
    columns = ["label", *(f"feature {place}" for place in range(min(FEATURES, train.x.shape[1])))]
    rows = [
        [named(data, train.y[place]), *(f"{value:.4g}" for value in train.x[place][:FEATURES])]
        for place in in_turn(train.y, 12)
    ]
    return Table(columns, rows, f"the first {FEATURES} of {train.x.shape[1]} features" if more > 0 else "")


def notes(data: Data) -> Table | None:
    """What was skipped or changed while the data were read; None, which a notebook does not show, for nothing."""
    return Table(("what was skipped or changed in the data",), [(line,) for line in data.notes]) if data.notes else None


def splits(data: Data) -> Table:
    """How many samples of each class every split has; of numbers, their mean and their range."""
    found = {"train": data.train.y, "calibration": data.calibration.y, "validation": data.validation.y}
    if data.task == "detection":
        return _boxes(found, data.classes)
    if data.train.y.dtype.kind == "f":
        rows = [
            (name, count(len(y)), title, *(f"{value:.4g}" for value in (column.min(), column.mean(), column.max())))
            for name, y in found.items()
            for title, column in zip(data.classes, y.T, strict=True)
        ]
        return Table(("split", "samples", "value", "lowest", "mean", "highest"), rows)
    counts = {name: _counts(y, len(data.classes)) for name, y in found.items()}
    rows = [(label, *(count(of[place]) for of in counts.values())) for place, label in enumerate(data.classes)]
    return Table(("class", *found), [*rows, ("samples", *(count(len(y)) for y in found.values()))])


def _boxes(found: Mapping[str, np.ndarray], names: Sequence[str]) -> Table:
    """Boxes of each class, and pictures, in every split."""
    rows = [
        (label, *(count(int((y[:, 1:, 0] == kind).sum())) for y in found.values())) for kind, label in enumerate(names)
    ]
    return Table(("class", *found), [*rows, ("pictures", *(count(len(y)) for y in found.values()))], "boxes of a class")


def _counts(y: np.ndarray, classes: int) -> list[int]:
    if y.ndim == 3:  # masks: pictures that have a pixel of it
        return [int((y == label).any(axis=(1, 2)).sum()) for label in range(classes)]
    if y.ndim == 2:
        return [int(number) for number in y.sum(axis=0)]
    return [int((y == label).sum()) for label in range(classes)]
