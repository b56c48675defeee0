"""Classes are told apart: by everybody, in grey, and where more of them are than colours."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from edgekit.runner.drawing import style

DEFICIENCIES = {  # Machado, Oliveira and Fernandes 2009, severity 1, of linear RGB
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def contrast(one: style.Colour, other: style.Colour) -> float:
    """WCAG 2, 1 to 21."""
    low, high = sorted(map(style.luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_the_first_28_classes_have_looks_of_their_own() -> None:
    looks = [style.of(number) for number in range(28)]
    assert len(set(looks)) == 28
    for one, next_one in pairwise(looks):
        assert one.colour != next_one.colour and one.pattern != next_one.pattern


def test_the_first_four_classes_are_told_apart_in_grey() -> None:
    for one, other in combinations([style.of(number) for number in range(4)], 2):
        assert contrast(one.colour, other.colour) > 1.3 or one.pattern != other.pattern
    for one, other in combinations([style.of(number).colour for number in range(3)], 2):
        assert contrast(one, other) > 1.5


@pytest.mark.parametrize("kind", DEFICIENCIES)
def test_colour_blind_people_see_neighbours_as_different(kind: str) -> None:
    def seen(colour: style.Colour) -> np.ndarray:
        linear = (np.array(colour) / 255) ** 2.2
        return np.clip(np.array(DEFICIENCIES[kind]) @ linear, 0, 1) ** (1 / 2.2)

    for number in range(len(style.COLOURS)):
        one, other = seen(style.of(number).colour), seen(style.of(number + 1).colour)
        assert np.abs(one - other).max() > 0.2, number


def test_letters_can_be_read_on_every_colour() -> None:
    assert all(contrast(look.colour, look.against) > 4.5 for look in map(style.of, range(7)))
