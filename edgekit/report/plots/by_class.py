"""What the accuracy of what ships hides: which class is taken for which, and the samples that were lost."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from edgekit.core.schema.by_class import Confusion, ShownLost
from edgekit.report.plots.samples import ALONG, draw
from edgekit.report.plots.style import NAMING, done

LETTERS = 13
"""Of a class's name beside a matrix."""
RIGHT = "#e8e8e8"
LEAST_SHARE = 0.05
"""Of a class: what the darkest colour stands for at least, so that one mistake does not look like many."""
LARGEST, SMALLEST, ROOM = 7.0, 5.0, 240.0
"""Points of a number in a cell; ROOM: of all its bold letters side by side, over all columns."""
COLUMNS = 6
TITLE, LINES = 14, 2
"""Letters of a line above a sample, and lines of a name."""


def confusion(found: Confusion, variants: Sequence[str]) -> Figure:
    """Samples of each class by the class that they are given, for the first two variants: before and after.

    On the grey diagonal is what is right; beside it, the darker, the more of the class are taken for that other one.
    """
    shown = {name: np.array(found["counts"][name]) for name in variants if name in found["counts"]}
    shown = dict(list(shown.items())[:2])
    titles = [_short(name, LETTERS) for name in found["classes"]]
    titles += [f"{found['rest']} others"] if found["rest"] else []
    shares = {name: _wrong(counts, bool(found["rest"])) for name, counts in shown.items()}
    top = max(LEAST_SHARE, *(float(np.nanmax(each, initial=0.0)) for each in shares.values()))
    with plt.rc_context({**NAMING, "axes.grid": False}):
        height = 1.7 + 0.23 * max(6, len(titles))
        figure, grid = plt.subplots(1, len(shown), figsize=(7.6, height), layout="constrained", squeeze=False)
        for place, (axes, (name, counts)) in enumerate(zip(grid[0], shown.items(), strict=True)):
            _cells(axes, counts, shares[name], top)
            axes.set_title(_heading(name, counts, found), fontsize=8.5)
            axes.set_xticks(range(len(titles)), titles, rotation=90, fontsize=7.5)
            axes.set_yticks(range(len(titles)), titles if place == 0 else [""] * len(titles), fontsize=7.5)
            axes.set_xlabel("answered as", fontsize=8)
            axes.tick_params(length=0)
        grid[0][0].set_ylabel("label", fontsize=8)
    return done(figure)


def lost(found: ShownLost, x: np.ndarray) -> Figure | None:
    """The samples `x` that were lost, raw or in words, with label and what each is taken for; None: none was."""
    samples = found["samples"]
    if not samples:
        return None
    rows = -(-len(samples) // COLUMNS)
    titles = [[*_lines("is", row["label"]), *_lines("said", row["variant"])] for row in samples]
    height = 0.3 + rows * (1.25 + 0.14 * max(map(len, titles)))
    with plt.rc_context(NAMING):
        figure, grid = plt.subplots(rows, COLUMNS, figsize=(7.6, height), layout="constrained", squeeze=False)
        for axes in grid.flat[len(samples) :]:
            axes.set_axis_off()
        for axes, sample, lines in zip(grid.flat, x, titles, strict=False):
            draw(axes, sample, found["kind"], str(sample) if x.dtype.kind == "U" else "")
            axes.set_title("\n".join(lines), fontsize=7, weight="normal")
        if found["kind"] in ALONG:
            figure.supxlabel("feature →" if found["kind"] == "vector" else ALONG[found["kind"]], fontsize=8)
    return done(figure)


def _heading(name: str, counts: np.ndarray, found: Confusion) -> str:
    among = found["among_the_rest"][name]
    wrong = int(counts.sum() - np.trace(counts)) + among
    heading = f"{name}\n{wrong:,} of {int(counts.sum()) + among:,} samples wrong"
    return f"{heading},\n{among:,} of them within the {found['rest']} others" if found["rest"] else heading


def _wrong(counts: np.ndarray, rest: bool) -> np.ndarray:
    """Of each class the share that is taken for each other one; NaN for none, what is right, and the rest."""
    shares = np.array(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    np.fill_diagonal(shares, np.nan)
    shares[counts == 0] = np.nan
    if rest:
        shares[-1, :] = shares[:, -1] = np.nan
    return shares


def _cells(axes: Axes, counts: np.ndarray, wrong: np.ndarray, top: float) -> None:
    """Numbers in their cells; nothing where there is none."""
    diagonal = np.where(np.eye(len(counts), dtype=bool), 0.0, np.nan)
    axes.imshow(diagonal, cmap=ListedColormap([RIGHT]), aspect="auto")
    axes.imshow(wrong, cmap="Oranges", vmin=-0.1 * top, vmax=1.25 * top, aspect="auto")
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if wrong[row, column] > 0.7 * top else "#1b1f24"  # NaN is not above
            weight = "bold" if row == column else "normal"
            text, size = _fitting(int(count), len(counts))
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour, weight=weight)
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#bbbbbb")


def _fitting(count: int, columns: int) -> tuple[str, float]:
    """The number and the size of its letters, in points; in thousands where whole it would leave its cell."""
    for text in (f"{count:,}", f"{count / 1000:.0f}k"):
        size = min(LARGEST, ROOM / (columns * len(text)))
        if size >= SMALLEST:
            break
    return text, size


def _short(name: str, letters: int) -> str:
    """Both ends of a long name: many differ only in their last letters."""
    keep = letters - 1
    return name if len(name) <= letters else f"{name[: keep - keep // 2].rstrip()}…{name[-(keep // 2) :].lstrip()}"


def _lines(word: str, name: str) -> list[str]:
    """`is` and the name, over two lines at most; a long name is shortened in its middle until it fits."""
    for letters in range(min(len(name), LINES * TITLE), 2, -1):
        lines = textwrap.wrap(f"{word} {_short(name, letters)}", TITLE, break_on_hyphens=False)
        if len(lines) <= LINES:
            return lines
    return [f"{word} {name}"]
