"""Accuracy class by class: what is taken for what, and which samples were lost."""

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
from edgekit.report.figures import NAMING, Picture, done, picture
from edgekit.report.formatting import capitalised, count, percent
from edgekit.report.sections import examples
from edgekit.report.sections.samples import ALONG, draw
from edgekit.report.tables import Grid, Table, grid

LOST = "evidence/lost.npz"
LETTERS = 40
"""Of a class's name in a table."""
MATRIX_LETTERS = 13
"""Of a class's name beside a matrix."""
RIGHT = "#e8e8e8"
LEAST_SHARE = 0.05
"""Of a class: what the darkest colour stands for at least, so that one mistake does not look like many."""
LARGEST, SMALLEST, WIDTH = 7.0, 5.0, 240.0
"""Points of a number in a cell; WIDTH: of all its bold letters side by side, over all columns."""
SAMPLE_COLUMNS = 6
TITLE, NAME_LINES = 14, 2
"""Letters of a line above a sample, and lines of a name."""


def table(artifact: Artifact) -> Table:
    """Each class, label, kind or range of values: its score by the baseline and by each variant that ships."""
    found = artifact.metrics["by_class"]
    rows = [[_short(row["name"]), count(row["samples"]), *scores(row, found)] for row in found["groups"]]
    return Table((found["group"], "samples", *found["variants"]), rows, caption(found))


def scores(row: GroupRow, found: ByClass) -> list[str]:
    """A cell for each variant: its score, and how many samples more or fewer than the baseline it finds."""
    before = row["answers"][0]["found"]
    cells = []
    for one in row["answers"]:
        score = _score(one["score"], found)
        change = 0 if one["found"] is None or before is None else one["found"] - before
        cells.append(f"{score}\u00a0({change:+d})" if change else score)
    return cells


def caption(found: ByClass) -> str:
    """What the table's cells are, on which split, and how many rows are left out."""
    more = found["groups_in_all"] - len(found["groups"])
    counted = any(one["found"] is not None for row in found["groups"] for one in row["answers"])
    text = f"{found['score']} on {found['split']}, {found['samples']:,} samples"
    text += "; in brackets, how many more or fewer samples than the baseline gets right" if counted else ""
    return f"{text}; the {len(found['groups'])} that lose the most are shown, {more:,} others are not" if more else text


def lost_sentence(artifact: Artifact) -> str:
    """How many samples were lost and gained by each variant that ships, and when one counts as right."""
    found, lost = artifact.metrics["by_class"], artifact.metrics["lost"]
    counts = [
        f"{name} loses {found['lost'][name]:,} and gains {found['gained'][name]:,} of {found['samples']:,}"
        for name in found["variants"][1:]
    ]
    shown = len(lost["samples"])
    some = f"; {'all' if shown == lost['in_all'] else shown} lost by {lost['variant']} are shown" if shown else ""
    return f"{'; '.join(counts) or 'no variant to compare'}{some}. A sample is right where {lost['right_means']}."


def lost_samples(artifact: Artifact) -> np.ndarray:
    """The raw samples, texts in words, that go with `metrics["lost"]["samples"]`, in that order."""
    with np.load(artifact.file(LOST), allow_pickle=False) as kept:
        return np.asarray(kept["x"])


def _score(score: float | None, found: ByClass) -> str:
    if score is None:
        return "–"
    return f"{score:.3g}" if found["groups"][0]["answers"][0]["found"] is None else percent(score)


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def section(result: Result, benchmark: Artifact) -> dict[str, Any]:
    """A table, and a sentence about what was lost."""
    return {"grid": _grid(result["by_class"]), "text": lost_sentence(benchmark)}


def _grid(found: ByClass) -> Grid:
    rows = [(row["name"], count(row["samples"]), *scores(row, found)) for row in found["groups"]]
    said = caption(found)
    columns = (found["group"], "samples", *found["variants"])
    return grid(capitalised(said), columns, rows, "|".join(columns[1:]))


def confusion_figure(found: Confusion, variants: Sequence[str]) -> Figure:
    """Samples of each class by the class that they are given, for the first two variants: before and after.

    On the grey diagonal is what is right; beside it, the darker, the more of the class are taken for that other one.
    """
    shown = {name: np.array(found["counts"][name]) for name in variants if name in found["counts"]}
    shown = dict(list(shown.items())[:2])
    titles = [_shortened(name, MATRIX_LETTERS) for name in found["classes"]]
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


def lost_figure(found: ShownLostSamples, x: np.ndarray) -> Figure | None:
    """The samples `x` that were lost, raw or in words, with label and what each is taken for; None: none was."""
    samples = found["samples"]
    if not samples:
        return None
    rows = -(-len(samples) // SAMPLE_COLUMNS)
    titles = [[*_lines("is", row["label"]), *_lines("said", row["variant"])] for row in samples]
    height = 0.3 + rows * (1.25 + 0.14 * max(map(len, titles)))
    with plt.rc_context(NAMING):
        figure, grid = plt.subplots(rows, SAMPLE_COLUMNS, figsize=(7.6, height), layout="constrained", squeeze=False)
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
    for (row, column), number in np.ndenumerate(counts):
        if number:
            colour = "white" if wrong[row, column] > 0.7 * top else "#1b1f24"  # NaN is not above
            weight = "bold" if row == column else "normal"
            text, size = _fitting(int(number), len(counts))
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour, weight=weight)
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#bbbbbb")


def _fitting(count: int, columns: int) -> tuple[str, float]:
    """The number and the size of its letters, in points; in thousands where whole it would leave its cell."""
    for text in (f"{count:,}", f"{count / 1000:.0f}k"):
        size = min(LARGEST, WIDTH / (columns * len(text)))
        if size >= SMALLEST:
            break
    return text, size


def _shortened(name: str, letters: int) -> str:
    """Both ends of a long name: many differ only in their last letters."""
    keep = letters - 1
    return name if len(name) <= letters else f"{name[: keep - keep // 2].rstrip()}…{name[-(keep // 2) :].lstrip()}"


def _lines(word: str, name: str) -> list[str]:
    """`is` and the name, over two lines at most; a long name is shortened in its middle until it fits."""
    for letters in range(min(len(name), NAME_LINES * TITLE), 2, -1):
        lines = textwrap.wrap(f"{word} {_shortened(name, letters)}", TITLE, break_on_hyphens=False)
        if len(lines) <= NAME_LINES:
            return lines
    return [f"{word} {name}"]


def pictures(benchmark: Artifact) -> dict[str, Picture]:
    """Which class is taken for which, and samples that were lost, as far as there are any."""
    metrics = benchmark.metrics
    confusion, lost, names = metrics["confusion"], metrics["lost"], metrics["by_class"]["variants"][:2]
    found = {}
    if confusion:
        caption = (
            "Validation samples. Grey cells are right answers. The darker any other cell, the larger the share of its "
            "class that is mistaken for the other one."
        )
        alt = f"Confusion matrix of {' and '.join(names)}, {len(confusion['classes'])} classes"
        found["confusion"] = picture(confusion_figure(confusion, names), alt, caption)
    figure = lost_figure(lost, lost_samples(benchmark))
    if figure is not None:
        answers = "; ".join(f"{row['label']} answered as {row['variant']}" for row in lost["samples"])
        shown = f"{len(lost['samples'])} of {lost['in_all']:,} are shown"
        caption = f"The baseline gets these samples right, and {lost['variant']} gets them wrong; {shown}."
        found["lost"] = picture(figure, f"Lost validation samples: {answers}", caption)
    labelled = examples.read(benchmark)
    if labelled is not None:
        caption = "Validation pictures, the best answers first, then the worst."
        found["examples"] = picture(examples.figure(labelled), "Labels and answers, drawn into pictures", caption)
    return found
