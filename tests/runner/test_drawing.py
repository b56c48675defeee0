"""Boxes and masks in pictures: where lines, colours and labels are, and that classes are distinct even in grey."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from edgekit.runner import drawing
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.postprocess.anomaly import Anomaly
from edgekit.runner.postprocess.detection import DetectedBox, Detection
from edgekit.runner.postprocess.segmentation import Segmentation

SIZES = [(1, 1), (3, 5), (16, 16), (2000, 40), (40, 2000), (720, 1280)]
GREY = np.full((240, 320, 3), 90, np.uint8)
CELLS = ["red", "white", "platelet"]
SHAPES = ["ground", "disc", "bar"]
Box = tuple[float, float, float, float]


def boxes(*found: tuple[str, float, Box], picture: np.ndarray = GREY) -> np.ndarray:
    return drawing.draw_boxes(picture, Detection([DetectedBox(*each) for each in found], {}), CELLS)


def masks(mask: np.ndarray, picture: np.ndarray = GREY) -> np.ndarray:
    return drawing.draw_masks(picture, Segmentation(SHAPES, mask, {}), SHAPES)


def squares() -> np.ndarray:
    mask = np.zeros((240, 320), np.uint8)
    mask[100:150, 50:150], mask[160:220, 200:300] = 1, 2
    return mask


def changed(picture: np.ndarray, before: np.ndarray = GREY) -> np.ndarray:
    return np.asarray((picture != before).any(axis=2))


def test_the_line_runs_along_the_box_and_the_inside_stays() -> None:
    found = boxes(("red", 0.9, (100, 80, 220, 180)))
    look = drawing.style_of_class(0).colour
    for place in ((80, 150), (179, 150), (120, 100), (120, 219)):
        assert tuple(found[place]) == look, place
    assert not changed(found)[84:176, 104:216].any()
    assert not changed(found)[184:].any() and not changed(found)[:, 224:].any()


def test_the_given_picture_stays_and_nothing_found_changes_nothing() -> None:
    before = GREY.copy()
    boxes(("white", 0.5, (10, 10, 50, 50)))
    masks(squares())
    np.testing.assert_array_equal(GREY, before)
    np.testing.assert_array_equal(boxes(), GREY)
    np.testing.assert_array_equal(masks(np.zeros((240, 320), np.uint8)), GREY)


def test_classes_have_their_colours_and_patterns() -> None:
    found = boxes(*((label, 0.8, (20, 20 + 70 * row, 300, 70 + 70 * row)) for row, label in enumerate(CELLS)))
    for row in range(3):
        look = drawing.style_of_class(row)
        line = (found[70 * row + 69, 30:290] == look.colour).all(axis=1)
        share = sum(look.pattern[::2]) / sum(look.pattern)
        assert line.mean() == pytest.approx(share, abs=0.05)
        assert (found[70 * row + 69, 30:290][~line] == look.against).all()


@pytest.mark.parametrize("size", SIZES)
def test_any_size_and_any_box_at_the_edges_can_be_drawn(size: tuple[int, int]) -> None:
    height, width = size
    sides = [(0, 0, width, height), (0, 0, 0, 0), (width, height, width, height), (width / 2, 0, width, height / 2)]
    picture = np.zeros((height, width, 3), np.uint8)
    found = boxes(*((CELLS[place % 3], 0.99, side) for place, side in enumerate(sides)), picture=picture)
    assert found.shape == picture.shape and found.dtype == np.uint8 and found.any()


def test_labels_of_neighbours_do_not_cover_one_another() -> None:
    taken: list[drawing.Area] = []
    for step in range(5):
        area = 20 + 3 * step, 60 + 2 * step, 120 + 3 * step, 160 + 2 * step
        taken.append(drawing.place_label(area, (60, 9), (320, 240), taken))
    assert all(drawing.overlap(*pair) == 0 for pair in combinations(taken, 2))
    assert all(x >= 0 and y >= 0 and right <= 320 and bottom <= 240 for x, y, right, bottom in taken)


def test_large_pictures_have_large_letters() -> None:
    small = boxes(("red", 0.9, (100, 80, 220, 180)))
    large = boxes(("red", 0.9, (400, 320, 880, 720)), picture=GREY.repeat(4, axis=0).repeat(4, axis=1))
    ink = [int((each == drawing.style_of_class(0).against).all(axis=2).sum()) for each in (small, large)]
    assert ink[1] > 5 * ink[0]


def test_the_inside_is_half_its_colour_the_edge_whole_and_the_first_class_clear() -> None:
    mask, found = squares(), masks(squares())
    for kind, (row, column) in ((1, (125, 100)), (2, (190, 250))):
        colour = np.array(drawing.style_of_class(kind).colour)
        assert found[row, column].tolist() == (90 // 2 + colour // 2).tolist()
        rows, columns = np.nonzero(mask == kind)
        assert (found[rows.min(), columns.min() : columns.max() + 1] == colour).all()
        assert (found[rows.min() : rows.max() + 1, columns.min()] == colour).all()
    assert (found[40:][mask[40:] == 0] == 90).all(), "below the names the ground is as it was"


def test_names_of_the_classes_that_are_there_stand_on_the_left() -> None:
    def first_column(mask: np.ndarray) -> list[tuple[int, ...]]:
        rows = [tuple(pixel) for pixel in masks(mask)[:, 0].tolist()]
        return [*dict.fromkeys(row for row in rows if row != (90, 90, 90))]

    one, two = drawing.style_of_class(1).colour, drawing.style_of_class(2).colour
    assert first_column(squares()) == [one, two]
    assert first_column(np.where(squares() == 1, 0, squares())) == [two]


@pytest.mark.parametrize("size", SIZES)
def test_any_size_can_be_coloured(size: tuple[int, int]) -> None:
    mask = np.random.default_rng(0).integers(0, 3, size).astype(np.uint8)
    found = masks(mask, np.zeros((*size, 3), np.uint8))
    assert found.shape == (*size, 3) and found.dtype == np.uint8
    assert found.any() == (mask > 0).any()


@pytest.mark.parametrize(
    ("label", "expected"),
    [("RBC", "RBC"), ("Zürich", "Zurich"), ("é x", "e x"), ("红细胞", "#4"), ("a\nb", "#4"), ("", "#4")],
)
def test_other_alphabets_give_the_number_of_the_class(label: str, expected: str) -> None:
    assert drawing.caption(label, 4, 0.5, lambda text: True) == f"{expected} 50%"


@pytest.mark.parametrize(
    ("letters", "expected"),
    [(40, "a very long name 87%"), (20, "a very long name 87%"), (12, "a very.. 87%"), (4, "87%"), (3, "87%"), (2, "")],
)
def test_a_name_that_is_too_long_keeps_its_share_whole(letters: int, expected: str) -> None:
    assert drawing.caption("a very long name", 0, 0.87, lambda text: len(text) <= letters) == expected


@pytest.mark.parametrize("width", [8, 20, 32, 60])
def test_a_caption_stays_inside_a_narrow_picture(width: int) -> None:
    """Of 100 % that is cut, 10 would remain; nothing is written in a picture of 8 pixels."""
    found = masks(np.ones((48, width), np.uint8), np.full((48, width, 3), 90, np.uint8))
    ink = (found == drawing.style_of_class(1).against).all(axis=2)
    assert not ink[:, -1].any() and ink.any() == (width > 30)


DEFICIENCIES = {  # Machado, Oliveira and Fernandes 2009, severity 1, of linear RGB
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def contrast(one: drawing.Colour, other: drawing.Colour) -> float:
    """WCAG 2, 1 to 21."""
    low, high = sorted(map(drawing.luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_the_first_28_classes_have_looks_of_their_own() -> None:
    looks = [drawing.style_of_class(number) for number in range(28)]
    assert len(set(looks)) == 28
    for one, next_one in pairwise(looks):
        assert one.colour != next_one.colour and one.pattern != next_one.pattern


def test_the_first_four_classes_are_distinct_in_grey() -> None:
    for one, other in combinations([drawing.style_of_class(number) for number in range(4)], 2):
        assert contrast(one.colour, other.colour) > 1.3 or one.pattern != other.pattern
    for one, other in combinations([drawing.style_of_class(number).colour for number in range(3)], 2):
        assert contrast(one, other) > 1.5


@pytest.mark.parametrize("kind", DEFICIENCIES)
def test_colour_blind_people_see_neighbours_as_different(kind: str) -> None:
    def seen(colour: drawing.Colour) -> np.ndarray:
        linear = (np.array(colour) / 255) ** 2.2
        return np.clip(np.array(DEFICIENCIES[kind]) @ linear, 0, 1) ** (1 / 2.2)

    for number in range(len(drawing.COLOURS)):
        one, other = seen(drawing.style_of_class(number).colour), seen(drawing.style_of_class(number + 1).colour)
        assert np.abs(one - other).max() > 0.2, number


def test_letters_can_be_read_on_every_colour() -> None:
    assert all(contrast(look.colour, look.against) > 4.5 for look in map(drawing.style_of_class, range(7)))


def distances(size: tuple[int, int], spot: tuple[int, int], fit: str, threshold: float = 2.0) -> np.ndarray:
    """A grey picture of (height, width) with the distances of a sample of 64×64 with 8×8 cells, one of which is 5."""
    cells = np.ones((8, 8), np.float32)
    cells[spot] = 5.0
    steps = ({"step": "resize_picture", "width": 64, "height": 64, "fit": fit},)
    raw = RawSpec("image", (64, 64, 3), "uint8", input_path=steps)
    answer = Anomaly(True, 5.0, threshold, "anomaly", {}, cells)
    return drawing.draw_distances(np.full((*size, 3), 90, np.uint8), answer, ["normal", "anomaly"], raw)


@pytest.mark.parametrize(("size", "fit", "centre"), [
    ((64, 64), "stretch", (36, 28)), ((640, 320), "stretch", (360, 140)), ((320, 640), "letterbox", (200, 280)),
])  # fmt: skip
def test_a_large_distance_is_tinted_where_it_is(size: tuple[int, int], fit: str, centre: tuple[int, int]) -> None:
    """With a letterbox, the 64×64 sample has 16 rows of padding above the picture."""
    found = distances(size, (4, 3), fit)
    tinted = np.argwhere(changed(found, np.full((*size, 3), 90, np.uint8)))
    tinted = tinted[tinted[:, 0] > size[0] // 3]  # below the label
    scale = size[1] / 64
    assert np.abs(tinted.mean(axis=0) - centre).max() < 2 * scale
    assert tuple(found[centre]) == tuple((90 + each) // 2 for each in drawing.HEAT)


def test_levels_rise_from_the_median_to_the_threshold_and_jump_there() -> None:
    levels = drawing.heat_levels(np.array([0.0, 1.0, 1.5, 2.0, 2.1, 9.0]), 2.0, 1.0)
    assert levels.tolist() == [0, 0, drawing.PALE // 2, drawing.PALE, drawing.MAX_HEAT, drawing.MAX_HEAT]
    assert not drawing.heat_levels(np.ones((3, 3)), 2.0).any()


@pytest.mark.parametrize("size", SIZES)
def test_any_size_can_be_tinted(size: tuple[int, int]) -> None:
    for fit in ("stretch", "letterbox"):
        assert distances(size, (0, 0), fit).shape == (*size, 3)
