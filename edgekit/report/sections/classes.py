"""Show the accuracy by class, which classes are confused, and which samples were lost.

A sample is lost by a variant if the baseline answers it correctly and the variant does not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.by_class import ByClass, Confusion, GroupRow, ShownLostSamples
from edgekit.core.schema.result import Result
from edgekit.report.figures import PLAIN_TEXT_STYLE, Picture, close_figure, picture
from edgekit.report.formatting import capitalised, count, percent
from edgekit.report.sections import examples
from edgekit.report.sections.samples import X_LABELS, draw_sample
from edgekit.report.tables import Grid, Table, grid

LOST = "evidence/lost.npz"
MAX_NAME_LENGTH = 40
"""Largest number of characters of a class name in a table."""
MAX_MATRIX_NAME_LENGTH = 13
"""Largest number of characters of a class name beside a matrix."""
RIGHT = "#e8e8e8"
MIN_DARKEST_SHARE = 0.05
"""The darkest colour stands for at least this share of a class, so that a single mistake does not look like many."""
LARGEST, SMALLEST, WIDTH = 7.0, 5.0, 240.0
"""Largest and smallest font size, in points, of a number in a cell of the confusion matrix. Between these bounds, the
size is `WIDTH` divided by the number of columns and by the number of characters."""
SAMPLE_COLUMNS = 6
TITLE, NAME_LINES = 14, 2
"""Largest number of characters in a line above a sample, and largest number of lines for a label or an answer."""


def table(artifact: Artifact) -> Table:
    """Show the score of each class, label or range of values, for the baseline and for each variant that ships."""
    by_class = artifact.metrics["by_class"]
    rows = [[_short(row["name"]), count(row["samples"]), *scores(row, by_class)] for row in by_class["groups"]]
    return Table((by_class["group"], "samples", *by_class["variants"]), rows, caption(by_class))


def scores(row: GroupRow, by_class: ByClass) -> list[str]:
    """Return a cell for each variant: its score, and how many more right answers it has than the baseline."""
    before = row["answers"][0]["found"]
    cells = []
    for one in row["answers"]:
        score = _score(one["score"], by_class)
        change = 0 if one["found"] is None or before is None else one["found"] - before
        cells.append(f"{score}\u00a0({change:+d})" if change else score)
    return cells


def caption(by_class: ByClass) -> str:
    """Say what the cells mean, which split was used, and how many rows are left out."""
    left_out_count = by_class["groups_in_all"] - len(by_class["groups"])
    counted = any(one["found"] is not None for row in by_class["groups"] for one in row["answers"])
    text = f"{by_class['score']} on {by_class['split']}, {by_class['samples']:,} samples"
    text += "; in brackets, how many more or fewer samples than the baseline gets right" if counted else ""
    return (
        f"{text}; the {len(by_class['groups'])} that lose the most are shown, {left_out_count:,} others are not"
        if left_out_count
        else text
    )


def lost_sentence(artifact: Artifact) -> str:
    """Say how many samples each shipping variant lost and gained, and when an answer counts as right."""
    by_class, lost = artifact.metrics["by_class"], artifact.metrics["lost"]
    counts = [
        f"{name} loses {by_class['lost'][name]:,} and gains {by_class['gained'][name]:,} of {by_class['samples']:,}"
        for name in by_class["variants"][1:]
    ]
    shown = len(lost["samples"])
    some = f"; {'all' if shown == lost['in_all'] else shown} lost by {lost['variant']} are shown" if shown else ""
    return f"{'; '.join(counts) or 'no variant to compare'}{some}. Samples count as right if {lost['right_means']}."


def lost_samples(artifact: Artifact) -> np.ndarray:
    """Return the raw samples of `metrics["lost"]["samples"]`, in the same order. Texts are given as words."""
    with np.load(artifact.file(LOST), allow_pickle=False) as file:
        return np.asarray(file["x"])


def _score(score: float | None, by_class: ByClass) -> str:
    if score is None:
        return "–"
    return f"{score:.3g}" if by_class["groups"][0]["answers"][0]["found"] is None else percent(score)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def section(result: Result, benchmark: Artifact) -> dict[str, Any]:
    """Return the table, and the sentence about lost samples."""
    return {"grid": _grid(result["by_class"]), "text": lost_sentence(benchmark)}


def _grid(by_class: ByClass) -> Grid:
    rows = [(row["name"], count(row["samples"]), *scores(row, by_class)) for row in by_class["groups"]]
    text = caption(by_class)
    columns = (by_class["group"], "samples", *by_class["variants"])
    return grid(capitalised(text), columns, rows, "|".join(columns[1:]))


def confusion_figure(confusion: Confusion, variants: Sequence[str]) -> Figure:
    """Draw the confusion matrices of the first two of the `variants`, which are the baseline and the shipped variant.

    Each row is a true class and each column an answer. Right answers are on the grey diagonal. The darker a cell
    outside the diagonal, the larger the share of the samples in its row that are mistaken for the class of its column.
    """
    shown = {name: np.array(confusion["counts"][name]) for name in variants if name in confusion["counts"]}
    shown = dict(list(shown.items())[:2])
    titles = [_shorten(name, MAX_MATRIX_NAME_LENGTH) for name in confusion["classes"]]
    titles += [f"{confusion['rest']} others"] if confusion["rest"] else []
    shares = {name: _wrong_shares(counts, bool(confusion["rest"])) for name, counts in shown.items()}
    top = max(MIN_DARKEST_SHARE, *(float(np.nanmax(each, initial=0.0)) for each in shares.values()))
    with plt.rc_context({**PLAIN_TEXT_STYLE, "axes.grid": False}):
        height = 1.7 + 0.23 * max(6, len(titles))
        figure, grid = plt.subplots(1, len(shown), figsize=(7.6, height), layout="constrained", squeeze=False)
        for place, (axes, (name, counts)) in enumerate(zip(grid[0], shown.items(), strict=True)):
            _cells(axes, counts, shares[name], top)
            axes.set_title(_heading(name, counts, confusion), fontsize=8.5)
            axes.set_xticks(range(len(titles)), titles, rotation=90, fontsize=7.5)
            axes.set_yticks(range(len(titles)), titles if place == 0 else [""] * len(titles), fontsize=7.5)
            axes.set_xlabel("answered as", fontsize=8)
            axes.tick_params(length=0)
        grid[0][0].set_ylabel("label", fontsize=8)
    return close_figure(figure)


def lost_figure(lost: ShownLostSamples, x: np.ndarray) -> Figure | None:
    """Draw the lost samples `x`, raw or as words, with their labels and the variant's answers.

    Returns None if none were lost.
    """
    samples = lost["samples"]
    if not samples:
        return None
    rows = -(-len(samples) // SAMPLE_COLUMNS)
    titles = [[*_lines("label", row["label"]), *_lines("answer", row["variant"])] for row in samples]
    height = 0.3 + rows * (1.25 + 0.14 * max(map(len, titles)))
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, grid = plt.subplots(rows, SAMPLE_COLUMNS, figsize=(7.6, height), layout="constrained", squeeze=False)
        for axes in grid.flat[len(samples) :]:
            axes.set_axis_off()
        for axes, sample, lines in zip(grid.flat, x, titles, strict=False):
            draw_sample(axes, sample, lost["kind"], str(sample) if x.dtype.kind == "U" else "")
            axes.set_title("\n".join(lines), fontsize=7, weight="normal")
        if lost["kind"] in X_LABELS:
            figure.supxlabel("feature →" if lost["kind"] == "vector" else X_LABELS[lost["kind"]], fontsize=8)
    return close_figure(figure)


def _heading(name: str, counts: np.ndarray, confusion: Confusion) -> str:
    among = confusion["among_the_rest"][name]
    wrong = int(counts.sum() - np.trace(counts)) + among
    heading = f"{name}\n{wrong:,} of {int(counts.sum()) + among:,} samples wrong"
    return f"{heading},\n{among:,} of them within the {confusion['rest']} others" if confusion["rest"] else heading


def _wrong_shares(counts: np.ndarray, rest: bool) -> np.ndarray:
    """Return the share of each class that is mistaken for each of the other classes.

    The result has the shape of `counts`. It is NaN where a count is zero, for right answers and, if `rest` is true, in
    the last row and the last column, which stand for all classes that are not listed.
    """
    shares = np.array(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    np.fill_diagonal(shares, np.nan)
    shares[counts == 0] = np.nan
    if rest:
        shares[-1, :] = shares[:, -1] = np.nan
    return shares


def _cells(axes: Axes, counts: np.ndarray, wrong: np.ndarray, top: float) -> None:
    """Draw the numbers of the matrix, and nothing for zero."""
    diagonal = np.where(np.eye(len(counts), dtype=bool), 0.0, np.nan)
    axes.imshow(diagonal, cmap=ListedColormap([RIGHT]), aspect="auto")
    axes.imshow(wrong, cmap="Oranges", vmin=-0.1 * top, vmax=1.25 * top, aspect="auto")
    for (row, column), number in np.ndenumerate(counts):
        if number:
            colour = "white" if wrong[row, column] > 0.7 * top else "#1b1f24"  # False for NaN
            weight = "bold" if row == column else "normal"
            text, size = _fit_number(int(number), len(counts))
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour, weight=weight)
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#bbbbbb")


def _fit_number(count: int, columns: int) -> tuple[str, float]:
    """Return a number as text, in thousands if it is too long, and the font size at which it fits its cell."""
    for text in (f"{count:,}", f"{count / 1000:.0f}k"):
        size = min(LARGEST, WIDTH / (columns * len(text)))
        if size >= SMALLEST:
            break
    return text, size


def _shorten(name: str, letters: int) -> str:
    """Shorten a long name in its middle, because many names differ only at their ends."""
    keep = letters - 1
    return name if len(name) <= letters else f"{name[: keep - keep // 2].rstrip()}…{name[-(keep // 2) :].lstrip()}"


def _lines(word: str, name: str) -> list[str]:
    """Return the lines of a word followed by a name. A long name is shortened in its middle to fit on two lines."""
    for letters in range(min(len(name), NAME_LINES * TITLE), 2, -1):
        lines = textwrap.wrap(f"{word} {_shorten(name, letters)}", TITLE, break_on_hyphens=False)
        if len(lines) <= NAME_LINES:
            return lines
    return [f"{word} {name}"]


def pictures(benchmark: Artifact) -> dict[str, Picture]:
    """Return figures of confused classes, lost samples and labelled images, as far as these exist."""
    metrics = benchmark.metrics
    confusion, lost, names = metrics["confusion"], metrics["lost"], metrics["by_class"]["variants"][:2]
    drawn = {}
    if confusion:
        caption = (
            "Validation samples. Grey cells are right answers. The darker any other cell, the larger the share of its "
            "class that is mistaken for the other one."
        )
        alt = f"Confusion matrix of {' and '.join(names)}, {len(confusion['classes'])} classes"
        drawn["confusion"] = picture(confusion_figure(confusion, names), alt, caption)
    figure = lost_figure(lost, lost_samples(benchmark))
    if figure is not None:
        answers = "; ".join(f"{row['label']} answered as {row['variant']}" for row in lost["samples"])
        shown = f"{len(lost['samples'])} of {lost['in_all']:,} are shown"
        caption = f"The baseline gets these samples right, and {lost['variant']} gets them wrong; {shown}."
        drawn["lost"] = picture(figure, f"Lost validation samples: {answers}", caption)
    labelled = examples.read(benchmark)
    if labelled is not None:
        caption = "Validation pictures, the best answers first, then the worst."
        drawn["examples"] = picture(examples.figure(labelled), "Labels and answers, drawn into pictures", caption)
    return drawn
