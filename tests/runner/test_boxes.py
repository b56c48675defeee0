"""Decoding and non-maximum suppression, against the same written out one box at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner import boxes
from edgekit.runner.boxes import BoxOptions, Decoder
from edgekit.runner.errors import BundleError

SIZE = (48, 64)
POINTS = 6 * 8 + 3 * 4


def outputs(seed: int, classes: int = 3) -> np.ndarray:
    """(points, 4 + classes) with many boxes that overlap."""
    random = np.random.default_rng(seed)
    sides = random.uniform(-0.5, 3, (POINTS, 4))
    return np.concatenate([sides, random.normal(-1, 2, (POINTS, classes))], axis=1).astype(np.float32)


def by_hand(rows: np.ndarray, options: BoxOptions) -> list[tuple[int, float, tuple[float, ...]]]:
    """The answer, point by point and pair by pair, in Python's own floats."""
    places = [(x * 8 + 4, y * 8 + 4, 8) for y in range(6) for x in range(8)]
    places += [(x * 16 + 8, y * 16 + 8, 16) for y in range(3) for x in range(4)]
    found = []
    for place, ((x, y, stride), row) in enumerate(zip(places, rows.tolist(), strict=True)):
        left, top, right, bottom = x - row[0] * stride, y - row[1] * stride, x + row[2] * stride, y + row[3] * stride
        sides = (min(max(left, 0), 64), min(max(top, 0), 48), min(max(right, 0), 64), min(max(bottom, 0), 48))
        found += [(-logit, place, kind, sides) for kind, logit in enumerate(row[4:])
                  if 1 / (1 + math.exp(-logit)) >= options.least_probability]  # fmt: skip
    kept: list[tuple[int, float, tuple[float, ...]]] = []
    for minus, _, kind, sides in sorted(found)[: boxes.MAX_CANDIDATES]:
        has_area = sides[2] > sides[0] and sides[3] > sides[1]
        if has_area and all(other != kind or overlap(sides, theirs) <= options.overlap for other, _, theirs in kept):
            kept.append((kind, -minus, sides))
    return kept[: options.most]


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    width = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [max(0.0, each[2] - each[0]) * max(0.0, each[3] - each[1]) for each in (one, other)]
    union = sum(areas) - width * height
    return width * height / union if union > 0 else 0.0


@pytest.mark.parametrize(
    "options", [BoxOptions(), BoxOptions(0.3, 0.3, 5), BoxOptions(0.9, 0.7, 100), BoxOptions(0.01, 0.5, 100)]
)
@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_those_of_the_definition(seed: int, options: BoxOptions) -> None:
    rows = outputs(seed)
    found, expected = Decoder(SIZE, POINTS, options)(rows), by_hand(rows, options)
    assert len(expected) > 0
    assert found.classes.tolist() == [kind for kind, _, _ in expected]
    assert found.logits.tolist() == pytest.approx([logit for _, logit, _ in expected])
    np.testing.assert_allclose(found.sides, [sides for _, _, sides in expected], atol=1e-4)


def test_of_equal_logits_the_first_point_and_the_first_class_come_first() -> None:
    rows = np.concatenate([np.full((POINTS, 4), 0.25), np.zeros((POINTS, 2))], axis=1).astype(np.float32)
    found = Decoder(SIZE, POINTS, BoxOptions(0.5, 0.5, 100))(rows)
    assert found.classes.tolist()[:4] == [0, 1, 0, 1]
    assert found.sides[0].tolist() == [2, 2, 6, 6]


def test_a_box_outside_the_picture_or_with_its_sides_reversed_is_no_answer() -> None:
    rows = np.full((POINTS, 5), -9, dtype=np.float32)
    rows[0] = [2, 2, -1, 2, 3]  # its right side lies left of the picture
    rows[9] = [-1, 1, 0.5, 1, 2]  # its left side lies right of its right one
    rows[20] = [1, 1, 1, 1, 1]
    found = Decoder(SIZE, POINTS)(rows)
    assert found.logits.tolist() == [1.0]


def test_nothing_is_found_where_no_logit_is_high_enough() -> None:
    rows = outputs(0)
    rows[:, 4:] = -9
    found = Decoder(SIZE, POINTS)(rows)
    assert [each.shape for each in found] == [(0, 4), (0,), (0,)]


@pytest.mark.parametrize(
    ("size", "points", "expected"),
    [((48, 64), 60, (8, 16)), ((160, 160), 400, (8,)), ((160, 160), 500, (8, 16)), ((30, 30), 16, (8,)),
     ((320, 320), 2125, (8, 16, 32, 64)), ((112, 160), 350, (8, 16))],
)  # fmt: skip
def test_strides_follow_from_the_number_of_points(
    size: tuple[int, int], points: int, expected: tuple[int, ...]
) -> None:
    found = boxes.grid_strides(size, points)
    assert sum(math.prod(boxes.grid_shape(size, stride)) for stride in found) == points
    if size != (320, 320):
        assert found == expected


def test_a_number_of_points_that_no_grids_have_is_refused() -> None:
    with pytest.raises(BundleError, match="61 points for a picture of 64×48"):
        boxes.grid_strides(SIZE, 61)


def test_a_probability_is_a_float32_and_never_overflows() -> None:
    for logit in (-1e4, -3.25, 0.0, 3.25, 1e4):
        found = boxes.probability(logit)
        assert 0 <= found <= 1 and float(np.float32(found)) == found
    assert boxes.probability(0.0) == 0.5


def stays(sides: np.ndarray, classes: np.ndarray, overlap: float, most: int) -> list[int]:
    """The definition of greedy suppression, one pair at a time, in float32."""
    kept: list[int] = []
    for place in range(len(sides)):
        mine = [other for other in kept if classes[other] == classes[place]]
        if len(kept) < most and not any(is_over(sides[other], sides[place], overlap) for other in mine):
            kept.append(place)
    return kept


def is_over(one: np.ndarray, other: np.ndarray, overlap: float) -> bool:
    """Whether two boxes share more than that of what they cover together, every step rounded to float32."""
    zero = np.float32(0)
    low, high = [max(one[side], other[side]) for side in (0, 1)], [min(one[side], other[side]) for side in (2, 3)]
    shared = max(high[0] - low[0], zero) * max(high[1] - low[1], zero)
    areas = [max(each[2] - each[0], zero) * max(each[3] - each[1], zero) for each in (one, other)]
    return bool(shared > np.float32(overlap) * (areas[0] + areas[1] - shared))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.one_of(st.integers(0, 20), st.sampled_from([39, 40, 41, 79, 80, 81, 130])),
    kinds=st.integers(1, 4),
    side=st.sampled_from([3, 9, 60]),
    whole=st.booleans(),
    overlap=st.sampled_from([0.5, 1 / 3, 0.25, 0.7, 1e-50, 0.999999999]),
    most=st.sampled_from([1, 5, 40, 41, 100]),
)
def test_the_boxes_that_stay_are_those_of_the_definition(
    seed: int, count: int, kinds: int, side: int, whole: bool, overlap: float, most: int
) -> None:
    """Also equal boxes, empty and inverted ones, and those that share exactly the limit."""
    random = np.random.default_rng(seed)
    sides = random.integers(0, side, (count, 4)) if whole else random.uniform(0, side, (count, 4))
    if seed % 2:
        sides = np.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1)
    sides, classes = sides.astype(np.float32), random.integers(0, kinds, count)
    found = boxes.non_maximum_suppression(sides, classes, overlap, most)
    assert found.dtype == np.int64
    assert found.tolist() == stays(sides, classes, overlap, most)


def test_of_more_boxes_than_go_on_those_with_the_highest_logits_are_suppressed() -> None:
    size, points = (160, 160), 400 + 100
    random = np.random.default_rng(3)
    rows = np.concatenate([random.uniform(0.1, 0.4, (points, 4)), random.normal(0, 1, (points, 2))], axis=1)
    found = Decoder(size, points, BoxOptions(0.01, 0.5, 1000))(rows.astype(np.float32))
    expected = np.sort(rows[:, 4:].astype(np.float32).ravel())[::-1][: boxes.MAX_CANDIDATES]
    assert found.logits.tolist() == expected.tolist(), "boxes this small cover nothing"
