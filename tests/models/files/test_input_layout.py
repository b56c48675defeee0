"""Where a sample's axes go, found from two shapes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core.errors import ModelError
from edgekit.models.files import interface

GREY, COLOUR = (4, 6, 1), (4, 6, 3)


@pytest.mark.parametrize(
    ("shape", "sample", "order", "sides"),
    [
        ((-1, 4, 6, 3), COLOUR, "NHWC", (4, 6, 3)),
        ((1, 3, 4, 6), COLOUR, "NCHW", (3, 4, 6)),
        ((-1, 3, -1, -1), COLOUR, "NCHW", (3, 4, 6)),
        ((-1, -1, -1, 3), COLOUR, "NHWC", (4, 6, 3)),
        ((-1, 1, 4, 6), GREY, "NCHW", (1, 4, 6)),
        ((-1, 4, 6), GREY, "NHWC", (4, 6)),
        ((-1, 24), GREY, "NHWC", (24,)),
        ((8, 5), (5,), "NC", (5,)),
        ((-1, 8, 3), (8, 3), "ANY", (8, 3)),
        ((1, -1, 3), (8, 3), "ANY", (8, 3)),
    ],
)
def test_one_layout_fits(shape: tuple[int, ...], sample: tuple[int, ...], order: str, sides: tuple[int, ...]) -> None:
    found = interface.find_layout(shape, sample)
    assert (found.order, found.sides) == (order, sides)
    x = np.arange(2 * np.prod(sample), dtype=np.float32).reshape(2, *sample)
    expected = np.moveaxis(x, -1, 1) if order == "NCHW" else x
    arranged = found.arrange(x)
    assert arranged.flags.c_contiguous
    assert np.array_equal(arranged, expected.reshape(2, *sides))


@pytest.mark.parametrize(
    ("shape", "sample", "message"),
    [
        ((-1, 6, 4, 3), COLOUR, r"takes \[\?, 6, 4, 3\], but the samples are \[4, 6, 3\] after its preprocess"),
        ((-1, 72), COLOUR, r"takes \[\?, 72\]"),  # flat, but in which order?
        ((4, 6, 3), COLOUR, "the batch first"),
        ((), (5,), r"takes \[\]"),
        ((-1, -1, -1, -1), COLOUR, r"takes \[\?, \?, \?, \?\], which .* channels first and with channels last"),
        ((1, 3, 3, 3), (3, 3, 3), "channels first and with channels last"),
        (
            (1, 3, 8),
            (8, 3),
            r"takes \[1, 3, 8\], channels before time, .* windows \[8, 3\].* transpose as its first step",
        ),
        ((1, 24), (8, 3), r"takes \[1, 24\]"),
        ((1, 8, 3, 1), (8, 3), r"takes \[1, 8, 3, 1\]"),
    ],
)
def test_none_or_two_fit(shape: tuple[int, ...], sample: tuple[int, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        interface.find_layout(shape, sample)
