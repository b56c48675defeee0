"""Several outputs as one array, and back."""

import numpy as np
import pytest

from edgekit.runner import output_vector

CASES = [
    ([(7,)], (7,)),
    ([(5, 4), (5, 3)], (5, 7)),
    ([(5, 4), (5, 3), (5, 1)], (5, 8)),
    ([(5, 4), (6, 3)], (38,)),
    ([(2,), (3,)], (5,)),
    ([(2, 3, 4), (2, 3, 1)], (2, 3, 5)),
    ([(2, 3), (2, 3, 1)], (12,)),
]


@pytest.mark.parametrize(("shapes", "whole"), CASES)
def test_outputs_are_joined_and_split_again(shapes: list[tuple[int, ...]], whole: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    outputs = [random.normal(size=(3, *shape)).astype(np.float32) for shape in shapes]
    made = output_vector.join(outputs)
    assert made.shape == (3, *whole)
    assert output_vector.shape(shapes) == whole
    for one, again in zip(outputs, output_vector.split(made, shapes), strict=True):
        assert np.array_equal(one, again)
