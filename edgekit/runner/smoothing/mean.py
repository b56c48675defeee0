"""The mean of the last windows: of probabilities, values or scores. The task's own rule then says what they mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.runner.smoothing import Smoother
from edgekit.runner.smoothing._numbers import numbers, restated

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def maker(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """Over `windows` windows; at a stream's beginning over those that there are."""
    last: deque[list[float]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        last.append(numbers(answer, manifest))
        return restated(answer, manifest, [_mean(column) for column in zip(*last)])

    return smooth


def _mean(values: Sequence[float]) -> float:
    """Added one after another: Python's `sum` rounds otherwise from version 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)
