"""Points in polygons and movements across lines, against the same in exact fractions or by symmetry."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgekit.device.live.rules.geometry import area, contains, crosses, directions, side

COORDINATE = st.integers(0, 16)
POINT = st.tuples(COORDINATE, COORDINATE)
L_SHAPE = [(0.0, 0.0), (10.0, 0.0), (10.0, 4.0), (4.0, 4.0), (4.0, 10.0), (0.0, 10.0)]


@pytest.mark.parametrize(
    ("point", "is_inside"),
    [
        ((2.0, 8.0), True),
        ((8.0, 2.0), True),
        ((8.0, 8.0), False),
        ((4.0, 4.0), True),
        ((10.0, 2.0), True),
        ((2.0, 10.0), True),
        ((0.0, 0.0), True),
        ((10.001, 2.0), False),
        ((-1.0, 4.0), False),
        ((12.0, 4.0), False),
    ],
)
def test_an_edge_belongs_to_its_polygon(point: tuple[float, float], is_inside: bool) -> None:
    assert contains(L_SHAPE, point) is is_inside
    assert contains(L_SHAPE[::-1], point) is is_inside


@given(st.lists(POINT, min_size=3, max_size=3), POINT)
def test_a_triangle_contains_what_its_three_sides_do(corners: list[tuple[int, int]], point: tuple[int, int]) -> None:
    assume(area(corners) != 0)
    parts = [
        Fraction(area([*(corners[:each] + corners[each + 1 :]), point])) for each in range(3)
    ]  # the triangles between the point and each side
    is_inside = sum(map(abs, parts)) == abs(area(corners))
    assert contains(corners, point) is is_inside


@pytest.mark.parametrize(
    ("line", "point", "direction"),
    [
        ([(0.5, 0.0), (0.5, 1.0)], (0.2, 0.5), "left"),
        ([(0.5, 1.0), (0.5, 0.0)], (0.8, 0.5), "right"),
        ([(0.0, 0.5), (1.0, 0.5)], (0.5, 0.2), "up"),
        ([(1.0, 0.5), (0.0, 0.5)], (0.5, 0.8), "down"),
        ([(0.4, 0.0), (0.6, 1.0)], (0.0, 0.5), "left"),
        ([(0.0, 0.6), (1.0, 0.4)], (0.5, 1.0), "down"),
    ],
)
def test_a_direction_leads_to_its_side(
    line: list[tuple[float, float]], point: tuple[float, float], direction: str
) -> None:
    """However the two ends are ordered."""
    for ends in (line, line[::-1]):
        assert directions(ends)[side(ends, point) > 0] == direction


@given(POINT, POINT, POINT, POINT)
def test_a_movement_crosses_a_line_if_the_line_crosses_the_movement(
    start: tuple[int, int], end: tuple[int, int], first: tuple[int, int], second: tuple[int, int]
) -> None:
    assume(first != second and start != end)
    is_between = side((first, second), start) * side((first, second), end) < 0
    is_other_way = side((start, end), first) * side((start, end), second) <= 0
    assume(is_between)
    assert crosses((first, second), start, end) is is_other_way
    assert crosses((first, second), end, start) is is_other_way
