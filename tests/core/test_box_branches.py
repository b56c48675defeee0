"""Answers in which boxes or scores are those of other answers."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core.box_branches import combinations, describe_difference
from edgekit.core.schema.branches import Branch

SIZE, CLASSES = (64, 96), 3
POINTS = 8 * 12 + 4 * 6
"""Of the grids with strides of 8 and 16 pixels."""


def outputs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((2, POINTS, 4 + CLASSES), dtype=np.float32)


def test_each_combination_replaces_its_part_and_nothing_else() -> None:
    expected, answer = outputs(0), outputs(1)
    combined = combinations(expected, answer, SIZE)
    assert list(combined)[:2] == [("boxes", None), ("scores", None)]
    assert set(combined) == {(branch, stride) for branch in ("boxes", "scores") for stride in (None, 8, 16)}
    rows = {None: np.arange(POINTS), 8: np.arange(96), 16: np.arange(96, POINTS)}
    columns = {"boxes": np.arange(4), "scores": np.arange(4, 7)}
    for (branch, stride), values in combined.items():
        is_replaced = np.zeros((POINTS, 4 + CLASSES), dtype=bool)
        is_replaced[np.ix_(rows[stride], columns[branch])] = True
        np.testing.assert_array_equal(values, np.where(is_replaced, expected, answer))


def test_points_that_belong_to_no_grids_are_replaced_together() -> None:
    combined = combinations(outputs(0)[:, :19], outputs(1)[:, :19], SIZE)
    assert set(combined) == {("boxes", None), ("scores", None)}


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        ("boxes", "the fraction is 1.0000 (of the grid of 8 pixels alone 1.0000), with its scores 0.0000"),
        ("scores", "the fraction is 0.0000, with its scores 1.0000 (of the grid of 8 pixels alone 1.0000)"),
    ],
)
def test_the_branch_that_differs_is_named(branch: Branch, words: str) -> None:
    """Each image has one likely box on the fine grid, which the other answers move or make unlikely."""
    expected = np.zeros((3, POINTS, 4 + CLASSES), dtype=np.float32)
    expected[..., :4], expected[..., 4:] = 0.5, -9
    expected[:, 40, 4] = 3
    answers = expected.copy()
    answers[:, 40, slice(4) if branch == "boxes" else slice(4, 7)] = 2.5 if branch == "boxes" else -9
    inputs = np.zeros((3, 3, *SIZE), dtype=np.float32)
    assert words in describe_difference(expected, answers, inputs)
