"""Format numbers for tables and sentences: thousands separators, three significant digits, units and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def percent(fraction: float | None) -> str:
    """Format a fraction as per cent with a non-breaking space: 0.9876 becomes 98.76 %."""
    return "–" if fraction is None else f"{100 * fraction:.2f}\u00a0%"


def percentage_points(value: float | None) -> str:
    """Format percentage points with their sign. Zero is +0.00."""
    return "–" if value is None else f"{round(value, 2) + 0.0:+.2f}"


def milliseconds(value: float | None) -> str:
    """Format milliseconds with three significant digits, such as 2.29 or 0.00412, or with all digits, such as 2,774."""
    return "–" if value is None else _three_digits(value)


def kilobytes(value: int | None) -> str:
    """Format bytes as kB with three significant digits: 4.67, 85.5, 1,088."""
    return "–" if value is None else _three_digits(value / 1000)


def count(value: float | None) -> str:
    """Format an integer with thousands separators: 98,496."""
    return "–" if value is None else f"{value:,.0f}"


def times(value: float | None) -> str:
    """Format a ratio: 12.3×."""
    return "–" if value is None else f"{_three_digits(value)}×"


def speedup(ratio: float | None, low: float | None, high: float | None) -> str:
    """Format a ratio such as 12.3×. The result is a dash if its interval, `low` to `high`, contains 1."""
    return "–" if ratio is None or low is None or high is None or low <= 1 <= high else times(ratio)


def faster(ratio: float, low: float, high: float) -> str:
    """Describe a ratio in words: `12.3× faster`, `0.63×, slower` or `no difference`."""
    if low <= 1 <= high:
        return "no difference"
    return f"{times(ratio)} faster" if ratio > 1 else f"{times(ratio)}, slower"


def bounds_text(low: float, high: float) -> str:
    """Format the interval of a ratio with three significant digits: 0.98–1.07."""
    return f"{_three_digits(low)}–{_three_digits(high)}"


def ratio_with_bounds(row: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """Return a ratio of a row and its bounds, or None if nothing was compared."""
    values = (row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high"))
    return None if None in values else values  # type: ignore[return-value]


def ratio_text(row: Mapping[str, Any], key: str) -> str:
    """Format a ratio of a row with its interval: 12.3× (11.9–12.7)."""
    values = ratio_with_bounds(row, key)
    return "–" if values is None else f"{times(values[0])} ({bounds_text(*values[1:])})"


def faster_with_bounds(row: Mapping[str, Any], key: str) -> str:
    """Describe a ratio in words with its interval: `12.3× faster (11.9–12.7)` or `no difference (0.97–1.04)`."""
    values = ratio_with_bounds(row, key)
    return "–" if values is None else f"{faster(*values)} ({bounds_text(*values[1:])})"


def milliseconds_with_bounds(value_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    """Format a latency with its interval: 1.25 (1.2–1.31). Without an interval there are no brackets."""
    interval = "" if low_ms is None or high_ms is None else f" ({milliseconds(low_ms)}–{milliseconds(high_ms)})"
    return milliseconds(value_ms) + interval


def bound_note(confidence: float) -> str:
    """Return the note that is shown below every table with upper bounds of drops. `confidence` is a fraction."""
    drop = "the largest drop, in pp, that the validation samples leave open"
    return f"At most: {drop} at {100 * confidence:g} % confidence"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def capitalised(text: str) -> str:
    """Return the text with a capital first letter.

    `str.capitalize` would also change all other letters to lower case.
    """
    return f"{text[:1].upper()}{text[1:]}"


def shorten_middle(text: str, max_length: int) -> str:
    """Shorten a text to `max_length` by leaving out its middle, because many names differ only at their ends."""
    return text if len(text) <= max_length else f"{text[: max_length // 2]}…{text[-max_length // 2 + 1 :]}"


def byte_size(value: int) -> str:
    """Format a size in the unit that suits it: 812 bytes, 9.74 kB, 1.23 MB."""
    if value < 1000:
        return f"{value} bytes"
    return f"{_three_digits(value / 1000)} kB" if value < 999_500 else f"{_three_digits(value / 1e6)} MB"


def latency(value_ms: float | None) -> str:
    """Format a latency in the unit that suits it: 9.84 µs, 1.25 ms, 2.31 s."""
    if value_ms is None:
        return "–"
    if value_ms < 0.9995:
        return f"{_three_digits(value_ms * 1000)} µs"
    return f"{_three_digits(value_ms)} ms" if value_ms < 999.5 else f"{_three_digits(value_ms / 1000)} s"
