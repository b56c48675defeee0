"""Masks over a picture: colours of the classes, edges, and names."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.runner.drawing import font, segmentation, style
from edgekit.runner.postprocess.segmentation import Segmentation

LABELS = ["ground", "disc", "bar"]
GREY = np.full((240, 320, 3), 90, np.uint8)


def drawn(mask: np.ndarray, picture: np.ndarray = GREY) -> np.ndarray:
    return segmentation.draw(picture, Segmentation(LABELS, mask, {}), LABELS)


def squares() -> np.ndarray:
    mask = np.zeros((240, 320), np.uint8)
    mask[100:150, 50:150], mask[160:220, 200:300] = 1, 2
    return mask


def test_the_inside_is_half_its_colour_the_edge_whole_and_the_first_class_clear() -> None:
    mask, found = squares(), drawn(squares())
    for kind, (row, column) in ((1, (125, 100)), (2, (190, 250))):
        colour = np.array(style.of(kind).colour)
        assert found[row, column].tolist() == (90 // 2 + colour // 2).tolist()
        rows, columns = np.nonzero(mask == kind)
        assert (found[rows.min(), columns.min() : columns.max() + 1] == colour).all()
        assert (found[rows.min() : rows.max() + 1, columns.min()] == colour).all()
    assert (found[40:][mask[40:] == 0] == 90).all(), "below the names the ground is as it was"


def test_names_of_the_classes_that_are_there_stand_on_the_left() -> None:
    found = drawn(squares())
    assert (found[0, 0] == style.of(1).colour).all() and (found[9, 0] == style.of(2).colour).all()
    mask = squares()
    mask[mask == 1] = 0
    assert (drawn(mask)[0, 0] == style.of(2).colour).all()


@pytest.mark.parametrize(("width", "said"), [(8, ""), (20, ""), (32, "100%"), (60, "disc 100%")])
def test_a_share_is_whole_or_not_there(width: int, said: str) -> None:
    """Of 100 % that is cut, 10 would remain."""
    found = drawn(np.ones((48, width), np.uint8), np.full((48, width, 3), 90, np.uint8))
    ink = (found[1:8, 1:] == style.of(1).against).all(axis=2)
    wanted = font.mask(said, 1) if said else np.zeros((7, 0), bool)
    assert ink[:, : wanted.shape[1]].tolist() == wanted.tolist() and not ink[:, wanted.shape[1] :].any()


def test_the_given_picture_stays_and_the_first_class_alone_changes_nothing() -> None:
    before = GREY.copy()
    drawn(squares())
    np.testing.assert_array_equal(GREY, before)
    np.testing.assert_array_equal(drawn(np.zeros((240, 320), np.uint8)), GREY)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (16, 16), (2000, 40), (40, 2000), (720, 1280)])
def test_any_size_can_be_drawn(size: tuple[int, int]) -> None:
    mask = np.random.default_rng(0).integers(0, 3, size).astype(np.uint8)
    found = drawn(mask, np.zeros((*size, 3), np.uint8))
    assert found.shape == (*size, 3) and found.dtype == np.uint8
    assert found.any() == (mask > 0).any()
