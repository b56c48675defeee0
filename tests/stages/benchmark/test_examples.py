"""Pictures that are drawn: some answered well, some badly."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.stages.benchmark.evidence import choose_examples


def test_half_are_answered_best_and_half_worst() -> None:
    closeness = np.array([0.5, 1.0, 0.1, 0.9, 0.3, 0.7])
    assert choose_examples(closeness) == [1, 3, 4, 2]
    assert choose_examples(closeness, 3) == [1, 3, 2]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_picture_stands_once_where_there_are_few(number: int) -> None:
    assert sorted(choose_examples(np.linspace(0, 1, number))) == list(range(number))
