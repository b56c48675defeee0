"""Letters of a label."""

from __future__ import annotations

import pytest

from edgekit.runner.drawing import font

ALL = "".join(map(chr, range(32, 127)))


def test_every_letter_has_a_shape_of_its_own() -> None:
    shapes = {font.mask(letter, 1).tobytes() for letter in ALL}
    assert len(shapes) == len(ALL)


def test_a_letter_looks_like_itself() -> None:
    lines = ["".join("#" if ink else "." for ink in row) for row in font.mask("F", 1)]
    assert lines == ["#####.", "#.....", "#.....", "####..", "#.....", "#.....", "#....."]


def test_larger_letters_are_the_same_shapes() -> None:
    small, large = font.mask("Rg8%", 1), font.mask("Rg8%", 3)
    assert large.shape == (21, 72)
    assert (large[::3, ::3] == small).all() and (large[1::3, 2::3] == small).all()


@pytest.mark.parametrize(
    ("label", "said"),
    [("RBC", "RBC"), ("Zürich", "Zurich"), ("é x", "e x"), ("红细胞", "#4"), ("a\nb", "#4"), ("", "#4")],
)
def test_other_alphabets_give_the_number_of_the_class(label: str, said: str) -> None:
    assert font.plain(label, "#4") == said


@pytest.mark.parametrize(
    ("letters", "said"),
    [(40, "a very long name 87%"), (20, "a very long name 87%"), (12, "a very.. 87%"), (4, "87%"), (3, "87%"), (2, "")],
)
def test_a_name_that_is_too_long_keeps_its_share_whole(letters: int, said: str) -> None:
    assert font.caption("a very long name", 0.87, letters) == said
