"""Boxes in a picture: where the lines are, and where the labels stand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from edgekit.runner.drawing import detection, style
from edgekit.runner.postprocess.detection import Detection, Found

LABELS = ["red", "white", "platelet"]
GREY = np.full((240, 320, 3), 90, np.uint8)
Box = tuple[float, float, float, float]


def drawn(*boxes: tuple[str, float, Box], picture: np.ndarray = GREY) -> np.ndarray:
    return detection.draw(picture, Detection([Found(*each) for each in boxes], {}), LABELS)


def changed(picture: np.ndarray, before: np.ndarray = GREY) -> np.ndarray:
    return np.asarray((picture != before).any(axis=2))


def test_the_line_runs_along_the_box_and_the_inside_stays() -> None:
    found = drawn(("red", 0.9, (100, 80, 220, 180)))
    look = style.of(0).colour
    for place in ((80, 150), (179, 150), (120, 100), (120, 219)):
        assert tuple(found[place]) == look, place
    assert not changed(found)[84:176, 104:216].any()
    assert not changed(found)[184:].any() and not changed(found)[:, 224:].any()


def test_the_given_picture_stays_and_nothing_found_changes_nothing() -> None:
    before = GREY.copy()
    drawn(("white", 0.5, (10, 10, 50, 50)))
    np.testing.assert_array_equal(GREY, before)
    np.testing.assert_array_equal(drawn(), GREY)


def test_classes_have_their_colours_and_patterns() -> None:
    found = drawn(*((label, 0.8, (20, 20 + 70 * row, 300, 70 + 70 * row)) for row, label in enumerate(LABELS)))
    for row in range(3):
        look = style.of(row)
        line = (found[70 * row + 69, 30:290] == look.colour).all(axis=1)
        share = sum(look.pattern[::2]) / sum(look.pattern)
        assert line.mean() == pytest.approx(share, abs=0.05)
        assert (found[70 * row + 69, 30:290][~line] == look.against).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (16, 16), (2000, 40), (40, 2000), (720, 1280)])
def test_any_size_and_any_box_at_the_edges_can_be_drawn(size: tuple[int, int]) -> None:
    height, width = size
    sides = [(0, 0, width, height), (0, 0, 0, 0), (width, height, width, height), (width / 2, 0, width, height / 2)]
    picture = np.zeros((height, width, 3), np.uint8)
    found = drawn(*((LABELS[place % 3], 0.99, side) for place, side in enumerate(sides)), picture=picture)
    assert found.shape == picture.shape and found.dtype == np.uint8 and found.any()


def test_labels_of_neighbours_do_not_cover_one_another() -> None:
    boxes: list[Box] = [(20.0 + 3 * step, 60.0 + 2 * step, 120.0 + 3 * step, 160.0 + 2 * step) for step in range(5)]
    taken: list[detection.Area] = []
    for box in boxes:
        area = tuple(map(round, box))
        taken.append(detection._place(area, (60, 9), (320, 240), taken))  # type: ignore[arg-type]
    assert all(detection._shared(*pair) == 0 for pair in combinations(taken, 2))
    assert all(x >= 0 and y >= 0 and right <= 320 and bottom <= 240 for x, y, right, bottom in taken)


def test_large_pictures_have_large_letters() -> None:
    small = drawn(("red", 0.9, (100, 80, 220, 180)))
    large = drawn(("red", 0.9, (400, 320, 880, 720)), picture=GREY.repeat(4, axis=0).repeat(4, axis=1))
    ink = [int((each == style.of(0).against).all(axis=2).sum()) for each in (small, large)]
    assert ink[1] > 5 * ink[0]
