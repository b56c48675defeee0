"""Tables and the numbers in them."""

from __future__ import annotations

import pytest

from edgekit.tables import Table, count, milliseconds, percent, points, times


def test_a_table_reads_well_as_text() -> None:
    text = repr(Table(("variant", "bytes"), [("a", "98,496"), ("long name", "7")], "Sizes"))
    assert text.splitlines() == [
        "Sizes",
        "variant     bytes",
        "─────────  ──────",
        "a          98,496",
        "long name       7",
    ]


def test_a_table_is_markdown_in_a_notebook() -> None:
    text = Table(("variant", "bytes"), [("a", "98,496")])._repr_markdown_()
    assert text.splitlines() == ["| variant | bytes |", "| --- | ---: |", "| a | 98,496 |"]


def test_a_bar_in_a_cell_does_not_break_the_markdown() -> None:
    assert Table(("max |Δ|",), [("a|b",)])._repr_markdown_().splitlines()[::2] == ["| max \\|Δ\\| |", "| a\\|b |"]


def test_an_empty_table_still_has_its_head() -> None:
    assert "variant" in repr(Table(("variant",), []))


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (percent(0.98765), "98.77\u00a0%"),
        (percent(None), "–"),
        (points(-0.001), "+0.00"),
        (points(0.5), "+0.50"),
        (milliseconds(0.0041234), "0.00412"),
        (milliseconds(2.2871), "2.29"),
        (count(98496), "98,496"),
        (times(12.345), "12.3×"),
    ],
)
def test_numbers_are_written_alike(written: str, wanted: str) -> None:
    assert written == wanted
