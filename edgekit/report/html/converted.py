"""What the conversion changed: every boundary at its worst, and what the converters left behind in what ships."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.conversion import LastBoundary, LeftBehind
from edgekit.core.schema.result import Result
from edgekit.report import tables
from edgekit.report.formatting import count, percent
from edgekit.report.html.rows import Grid, Line, grid

MOST_PLACES = 4


def build_grids(convert: Artifact, result: Result) -> list[Grid]:
    """The tables, in the order of the pipeline."""
    lost = left_out(result)
    return [around(convert), boundaries(convert), *([lost] if lost else []), left_behind(convert, result)]


def around(convert: Artifact) -> Grid:
    """The boundaries before and behind the converters; of each the network that stands worst."""
    found: dict[str, list[tuple[float, tuple[str, ...]]]] = defaultdict(list)
    for row, (model, boundary, samples, what) in zip(convert.metrics["ends"], tables.ends(convert).rows, strict=True):
        found[boundary].append((_badness(row), (boundary, model, samples, what)))
    rows = [max(some, key=lambda each: each[0])[1] for some in found.values()]
    columns = ("boundary", "worst network", "samples", "what was found there")
    return grid("Before and behind the converters, each at its worst", columns, rows, "samples", "what was found there")


def boundaries(convert: Artifact) -> Grid:
    """From network to file, step by step: in each column the worst of all files that crossed that boundary."""
    found: dict[tuple[str, str], list[LastBoundary]] = defaultdict(list)
    for row in tables.boundary_rows(convert):
        found[row["to"], row["from"]].append(row)
    lines = [
        Line(
            (
                *boundary,
                str(len(some)),
                f"{max(row['max_abs'] for row in some):.2g}",
                f"{min(row['snr_db'] for row in some):.1f}",
                tables.cosine(min(row["worst_cosine"] for row in some)),
                percent(min(row["top1_agreement"] for row in some)),
                min(some, key=lambda row: row["snr_db"])["name"],
            )
        )
        for boundary, some in found.items()
    ]
    columns = (
        "file", "compared with", "files", "max\u00a0|\u2060Δ|", "SNR, dB", "cosine of the worst sample",
        "top-1 agreement", "least SNR in",
    )  # fmt: skip
    samples = convert.metrics["check_samples"]
    caption = f"From network to file: the worst of all files, on {count(samples)} validation samples each"
    return Grid(caption, columns, lines, frozenset(columns[2:7]))


def left_out(result: Result) -> Grid | None:
    """Variants that failed or were wrong, each with its layer and advice; None if nothing was left out."""
    rows = [
        (row["name"], row["kind"], row["layer"] or row["operator"] or "", row["cause"], row["advice"] or "")
        for row in result["left_out"]
    ]
    columns = ("variant", "because of", "layer", "cause", "what to do")
    caption = "Left out: variants that failed to convert, or gave other answers; the run continued without them"
    return grid(caption, columns, rows, words="layer|cause|what to do") if rows else None


def left_behind(convert: Artifact, result: Result) -> Grid:
    """What computes nothing in the files that ship, or that came nearest where nothing does."""
    redundant: dict[str, list[LeftBehind]] = convert.metrics["debris"]
    nearest = {target: row["name"] for target, row in result["unmet"].items() if row}
    shown = {**result["winners"], **nearest}
    in_float = {name: ", ".join(convert.metrics["float_ops"].get(name, [])) for name in shown.values()}
    has_float = any(in_float.values())
    lines = [
        Line(
            (
                name,
                target if target in result["winners"] else f"{target}: no bundle",
                str(_transposes(redundant.get(name, []))),
                count(sum(one["moved_bytes"] for one in redundant.get(name, []))),
                _summary(redundant.get(name, [])),
                *([in_float[name]] if has_float else []),
            )
        )
        for target, name in shown.items()
    ]
    turned = sum(_transposes(found) > 0 for found in redundant.values())
    columns = (
        "variant", "target", "transposes inside", "bytes moved", "left behind, and where",
        *(["in float inside int8"] if has_float else []),
    )  # fmt: skip
    caption = (
        f"What the converters left behind that computes nothing; {turned or 'none'} of "
        f"{convert.metrics['variants']} files {'have' if turned > 1 else 'has'} a transpose inside the graph"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:4]), frozenset(columns[4:]))


def _badness(row: Mapping[str, Any]) -> float:
    """Larger is worse: of inputs the SNR, of ranges the values outside, of answers those that are wrong.

    Of merged branches the share that the outputs moved.
    """
    if "snr_db" in row:
        return -float(row["snr_db"])
    if row["to"] == "merged":
        return float(row["max_abs"] / row["largest"])
    return float(row["most_outside"] if "most_outside" in row else -row["accuracy"])


def _transposes(redundant: list[LeftBehind]) -> int:
    return sum(one["kind"] == "transpose" for one in redundant)


def _summary(redundant: list[LeftBehind]) -> str:
    """`copy 2: stem, head; when compiled here: reshape 1: input → stem.1`."""
    said = []
    for compiled in (False, True):
        places: dict[str, list[str]] = defaultdict(list)
        for one in redundant:
            if one["compiled"] == compiled:
                places[one["kind"]].append(one["where"])
        words = [f"{kind} {len(where)}: {_some(where)}" for kind, where in places.items()]
        said += [("when compiled here: " if compiled else "") + "; ".join(words)] if words else []
    return "; ".join(said) or "nothing"


def _some(where: list[str]) -> str:
    return ", ".join(where[:MOST_PLACES]) + (", …" if len(where) > MOST_PLACES else "")
