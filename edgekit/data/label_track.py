"""A label track: which stretches of a recording are what, as Audacity exports it, start, end and label in a line.

Seconds from the recording's start, with tabs between. A window belongs to the label that covers enough of it. Windows
of one stretch stay together, and no moment stands in windows of two stretches: what would share one is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.core.errors import DataError

Part = tuple[int, int, str]
"""Of a stretch in samples: where it starts, where it ends, its label."""
SLACK_S = 0.05
"""How far a stretch may reach past its recording: an export rounds."""


@dataclass(frozen=True)
class Stretch:
    """From `start_s` to `end_s` of a recording it is `label`."""

    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True)
class Window:
    """A window that has a label: its number among all of the recording, and the stretch that it is of."""

    number: int
    label: str
    stretch: int


@dataclass(frozen=True)
class Marked:
    """The windows that have a label, in order, and how many were left out, by why."""

    windows: list[Window]
    left_out: Counter[str]


def parse(name: str, content: bytes) -> tuple[list[Stretch], int]:
    """The stretches of a track by their start, and how many marks without a length were passed over."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: no text in UTF-8 (byte {error.start}); export the label track again") from None
    found, points = [], 0
    for line, text in enumerate(lines, 1):
        if not text.strip() or text.startswith("\\"):  # the second line of a label with a range of frequencies
            continue
        start_s, end_s, label = _cells(f"{name}, line {line}", text)
        if start_s == end_s:
            points += 1
            continue
        found.append(Stretch(start_s, end_s, label))
    if not found:
        raise DataError(f"{name}: marks no stretch; write start, end and label in a line, with tabs between")
    return sorted(found, key=lambda each: (each.start_s, each.end_s)), points


def _cells(where: str, text: str) -> tuple[float, float, str]:
    cells = [cell.strip() for cell in text.split("\t")]
    if len(cells) != 3:
        raise DataError(f"{where}: {len(cells)} cells; write start, end and label, with tabs between")
    try:
        start_s, end_s = float(cells[0]), float(cells[1])
    except ValueError:
        raise DataError(f"{where}: got {cells[0]!r} and {cells[1]!r}; start and end are seconds, as 12.5") from None
    if not (math.isfinite(end_s) and 0 <= start_s <= end_s):
        raise DataError(f"{where}: from {start_s:g} to {end_s:g} s; a stretch ends after it starts, and starts from 0")
    if not cells[2]:
        raise DataError(f"{where}: the label is empty; write it, or remove the line")
    return start_s, end_s, cells[2]


def check_length(name: str, stretches: Sequence[Stretch], seconds: float) -> None:
    """DataError for a stretch that reaches past its recording of so many seconds."""
    for each in stretches:
        if each.end_s > seconds + SLACK_S:
            raise DataError(
                f"{name}: {each.label!r} reaches to {each.end_s:g} s, the recording ends at {seconds:.2f} s; "
                "is it the track of another recording?"
            )


def marked(
    stretches: Sequence[Stretch],
    count: int,
    length: int,
    stride: int,
    rate_hz: int,
    least_share: float,
    background: str | None,
) -> Marked:
    """The label of each of `count` windows that has one; `length` and `stride` are in samples of the recording.

    A window is of the label that covers `least_share` of it, and more of it than any other does. Where no label
    touches it, it is `background`, if that is given; the stretches of the background are the gaps.
    """
    blocks = _blocks([_in_samples(each, rate_hz) for each in stretches])
    found: list[Window] = []
    left_out: Counter[str] = Counter()
    last_end, last = 0, -1
    first = 0
    for number in range(count):
        start, end = number * stride, number * stride + length
        while first < len(blocks) and blocks[first][1] <= start:
            first += 1
        touched = [at for at in range(first, len(blocks)) if blocks[at][0] < end]
        if not touched:
            if background is None:
                left_out["without a label"] += 1
                continue
            label, stretch = background, 2 * first  # gaps have even numbers, blocks odd ones
        elif len(touched) > 1:
            left_out["across two stretches"] += 1
            continue
        else:
            label, stretch = _label(blocks[first][2], start, end, least_share), 2 * first + 1
            if not label:
                left_out["covered by no label for long enough"] += 1
                continue
        if stretch != last and start < last_end:
            left_out["beside a window of another stretch, whose moments they share"] += 1
            continue
        found.append(Window(number, label, stretch))
        last_end, last = end, stretch
    return Marked(found, left_out)


def _in_samples(stretch: Stretch, rate_hz: int) -> Part:
    return round(stretch.start_s * rate_hz), round(stretch.end_s * rate_hz), stretch.label


def _blocks(parts: Sequence[Part]) -> list[tuple[int, int, list[Part]]]:
    """Start, end and parts of each run of parts that overlap one another; touching ends do not."""
    blocks: list[tuple[int, int, list[Part]]] = []
    for part in parts:
        if blocks and part[0] < blocks[-1][1]:
            start, end, inside = blocks[-1]
            blocks[-1] = (start, max(end, part[1]), [*inside, part])
        else:
            blocks.append((part[0], part[1], [part]))
    return blocks


def _label(parts: Sequence[Part], start: int, end: int, least_share: float) -> str:
    """The label that covers most of a window, and enough of it; empty where none does, or two alike."""
    covered: Counter[str] = Counter()
    for first, last, label in parts:
        covered[label] += max(0, min(end, last) - max(start, first))
    [(label, most), *others] = covered.most_common()
    if most < least_share * (end - start) or (others and others[0][1] == most):
        return ""
    return label
