"""Words in pictures: none is written over another."""

from __future__ import annotations

import pytest

from edgekit import plots
from edgekit.plots.candidates import LEAST_GAP, lines_up
from edgekit.plots.labels import apart


@pytest.mark.parametrize("shares", [[0.5, 0.5, 0.5], [0.9, 0.99, 0.98, 0.97], [0.0, 0.01], [0.2, 0.8]])
def test_labels_keep_their_order_and_their_distance(shares: list[float]) -> None:
    found = apart(shares, 0.1)
    order = sorted(range(len(shares)), key=lambda place: (shares[place], found[place]))
    for below, above in zip(order, order[1:], strict=False):
        assert found[above] - found[below] >= 0.1 - 1e-9
    assert max(found) <= 1.0


def test_what_has_room_stays_where_it_is() -> None:
    assert apart([0.2, 0.8], 0.1) == [0.2, 0.8]


def test_numbers_that_would_touch_stand_on_different_lines() -> None:
    macs = [1e6, 1.01e6, 1.02e6, 5e6, 9.9e6]
    lines = lines_up(macs, 1e6, 1e7)
    assert lines == [0, 1, 2, 0, 0]
    assert LEAST_GAP < 1 / 3


def test_nothing_to_choose_is_no_picture() -> None:
    assert plots.candidates([]) is None


def test_five_curves_and_their_teacher_are_named_once_each() -> None:
    curves = {
        name: [{"epoch": epoch, "validation_accuracy": 0.8 + place / 1000} for epoch in (1, 2)]
        for place, name in enumerate(("labels alone", "soft_targets", "dkd", "dist", "hints"))
    }
    [axes] = plots.learning_curves(curves, ("teacher", 0.81)).axes
    places = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_text()}
    assert set(places) == {*curves, "teacher"}
    heights = sorted(places.values())
    assert all(above - below > 0.05 for below, above in zip(heights, heights[1:], strict=False))
