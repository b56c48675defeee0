"""Numbers as tables and sentences show them: thousands apart, three digits, units and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def percent(fraction: float | None) -> str:
    """0.9876 → 98.76 %, with a space that does not break."""
    return "–" if fraction is None else f"{100 * fraction:.2f}\u00a0%"


def points(value: float | None) -> str:
    """Percentage points with their sign; a drop of nothing is +0.00."""
    return "–" if value is None else f"{round(value, 2) + 0.0:+.2f}"


def milliseconds(value: float | None) -> str:
    """Three significant digits: 2.29 ms, 0.234 ms, 0.00412 ms; from a thousand on all of them: 2,774 ms."""
    return "–" if value is None else _three(value)


def kilobytes(value: int | None) -> str:
    """Bytes as kB, three significant digits: 4.67, 85.5, 1,088."""
    return "–" if value is None else _three(value / 1000)


def count(value: float | None) -> str:
    """Thousands apart: 98,496."""
    return "–" if value is None else f"{value:,.0f}"


def times(value: float | None) -> str:
    """A ratio: 12.3×."""
    return "–" if value is None else f"{_three(value)}×"


def speedup(ratio: float | None, low: float | None, high: float | None) -> str:
    """A ratio with the interval `low` to `high`: 12.3×, or a dash where the interval holds 1."""
    return "–" if ratio is None or low is None or high is None or low <= 1 <= high else times(ratio)


def faster(ratio: float, low: float, high: float) -> str:
    """The same in words: 12.3× faster; 0.63×, slower; no difference."""
    if low <= 1 <= high:
        return "no difference"
    return f"{times(ratio)} faster" if ratio > 1 else f"{times(ratio)}, slower"


def span(low: float, high: float) -> str:
    """The interval of a ratio, three digits each: 0.98–1.07."""
    return f"{_three(low)}–{_three(high)}"


def ends(row: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """A ratio and its interval; None where nothing was compared."""
    found = (row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high"))
    return None if None in found else found  # type: ignore[return-value]


def with_ends(row: Mapping[str, Any], key: str) -> str:
    """12.3× (11.9–12.7)."""
    found = ends(row, key)
    return "–" if found is None else f"{times(found[0])} ({span(*found[1:])})"


def faster_with_ends(row: Mapping[str, Any], key: str) -> str:
    """12.3× faster (11.9–12.7); no difference (0.97–1.04)."""
    found = ends(row, key)
    return "–" if found is None else f"{faster(*found)} ({span(*found[1:])})"


def milliseconds_with_ends(value_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    """1.25 (1.2–1.31); without brackets where there is no interval."""
    interval = "" if low_ms is None or high_ms is None else f" ({milliseconds(low_ms)}–{milliseconds(high_ms)})"
    return milliseconds(value_ms) + interval


def at_most(confidence: float) -> str:
    """What the bound of a drop is, under every table that has one; `confidence` is a fraction."""
    drop = "the largest drop, in pp, that the validation samples leave open"
    return f"At most: {drop} at {100 * confidence:g} % confidence"


def _three(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def capitalised(text: str) -> str:
    """The text as a sentence begins; `str.capitalize` would make every other letter small."""
    return f"{text[:1].upper()}{text[1:]}"


def both_ends(text: str, most: int) -> str:
    """At most so many letters of a text, its middle left out: many names differ only in their last letters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def byte_size(value: int) -> str:
    """Bytes in the unit that suits them: 812 bytes, 9.74 kB, 1.23 MB."""
    if value < 1000:
        return f"{value} bytes"
    return f"{_three(value / 1000)} kB" if value < 999_500 else f"{_three(value / 1e6)} MB"


def latency(value_ms: float | None) -> str:
    """Milliseconds in the unit that suits them: 9.84 µs, 1.25 ms, 2.31 s."""
    if value_ms is None:
        return "–"
    if value_ms < 0.9995:
        return f"{_three(value_ms * 1000)} µs"
    return f"{_three(value_ms)} ms" if value_ms < 999.5 else f"{_three(value_ms / 1000)} s"
