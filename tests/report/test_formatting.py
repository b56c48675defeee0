"""Tables and the numbers in them."""

from __future__ import annotations

import pytest

from edgekit.report.formatting import (
    bound_note,
    bounds_text,
    count,
    faster,
    faster_with_bounds,
    milliseconds,
    milliseconds_with_bounds,
    percent,
    percentage_points,
    ratio_text,
    ratio_with_bounds,
    speedup,
    times,
)
from edgekit.report.tables import Table


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


def test_a_tag_or_an_entity_in_a_cell_or_a_title_is_text_in_markdown() -> None:
    hostile = Table(("<b>", "p95 ≤ 3 > 2"), [("<img src=x onerror=alert(1)>", "R&D, &lt;")], "a < b & c")
    assert hostile._repr_markdown_().splitlines() == [
        "**a &lt; b &amp; c**",
        "",
        "| &lt;b> | p95 ≤ 3 > 2 |",
        "| --- | --- |",
        "| &lt;img src=x onerror=alert(1)> | R&amp;D, &amp;lt; |",
    ]
    assert "<img src=x" in repr(hostile)  # plain text is plain


def test_an_empty_table_still_has_its_head() -> None:
    assert "variant" in repr(Table(("variant",), []))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (percent(0.98765), "98.77\u00a0%"),
        (percent(None), "–"),
        (percentage_points(-0.001), "+0.00"),
        (percentage_points(0.5), "+0.50"),
        (milliseconds(0.0041234), "0.00412"),
        (milliseconds(2.2871), "2.29"),
        (milliseconds(999.4), "999"),
        (milliseconds(2773.6), "2,774"),
        (count(98496), "98,496"),
        (times(12.345), "12.3×"),
        (times(1234.5), "1,234×"),
    ],
)
def test_numbers_are_written_alike(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize(
    ("ends", "words", "cell"),
    [
        ((3.312, 3.2, 3.4), "3.31× faster", "3.31×"),
        ((0.625, 0.6, 0.65), "0.625×, slower", "0.625×"),
        ((1.02, 0.98, 1.07), "no difference", "–"),
        ((1.3, 1.0, 1.6), "no difference", "–"),
        ((0.9, 0.8, 1.0), "no difference", "–"),
        ((1.02, 1.01, 1.03), "1.02× faster", "1.02×"),
    ],
)
def test_only_an_interval_that_excludes_1_is_a_difference(
    ends: tuple[float, float, float], words: str, cell: str
) -> None:
    assert (faster(*ends), speedup(*ends)) == (words, cell)


def test_what_was_not_compared_has_no_speed_up() -> None:
    assert speedup(None, None, None) == "–"


def test_an_interval_has_three_digits() -> None:
    assert bounds_text(0.9812, 1.0678) == "0.981–1.07"


def test_a_ratio_stands_with_its_interval_and_nothing_compared_is_a_dash() -> None:
    row = {"gain": 2.0, "gain_low": 1.9, "gain_high": 2.1, "other": None, "other_low": None, "other_high": None}
    assert (
        ratio_with_bounds(row, "gain") == (2.0, 1.9, 2.1)
        and ratio_with_bounds(row, "other") is ratio_with_bounds(row, "missing") is None
    )
    assert (ratio_text(row, "gain"), faster_with_bounds(row, "gain")) == ("2× (1.9–2.1)", "2× faster (1.9–2.1)")
    assert ratio_text(row, "other") == faster_with_bounds(row, "other") == "–"


def test_a_latency_stands_with_its_interval_where_it_has_one() -> None:
    assert milliseconds_with_bounds(1.25, 1.2, 1.31) == "1.25 (1.2–1.31)"
    assert milliseconds_with_bounds(1.25, None, None) == "1.25"


def test_the_sentence_about_bounds_names_its_confidence() -> None:
    assert bound_note(0.975).endswith("leave open at 97.5 % confidence")
