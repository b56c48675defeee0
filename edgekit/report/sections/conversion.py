"""Show what conversion changed: the outputs after each step, the variants left out, and redundant operators."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.conversion import ConvertedVariant, FinalBoundary, NotOfferedVariant, RedundantOperator
from edgekit.core.schema.result import Result
from edgekit.report.figures import DARK, PRECISION_MARKERS, STYLE, close_figure
from edgekit.report.formatting import count, percent
from edgekit.report.tables import Grid, Line, Table, grid

MAX_NAMES = 4
"""Largest number of operators or layers listed in a cell."""


def boundary_rows(artifact: Artifact) -> list[FinalBoundary]:
    """Return the last boundary of each variant, with the variant's name, target and precision.

    A boundary is the comparison of one conversion step with the step before it.
    """
    return [
        {
            **variant["boundaries"][-1],
            "name": variant["name"],
            "target": variant["target"],
            "precision": variant["precision"],
            "bytes": variant["bytes"],
        }
        for variant in _variants(artifact)
    ]


def table(artifact: Artifact) -> Table:
    """Show the size of every variant, and how far its outputs are from those of the step before.

    The table also has the redundant operators (in brackets: those that this machine adds when it compiles the file),
    and the operators that still compute in float.
    """
    rows = [
        (
            variant["name"],
            _method(variant),
            count(variant["bytes"]),
            row["from"],
            f"{row['max_abs']:.2g}",
            f"{row['snr_db']:.1f}",
            cosine(row["cosine"]),
            cosine(row["worst_cosine"]),
            percent(row["top1_agreement"]),
            _left_behind(artifact.metrics["debris"].get(variant["name"], [])),
            _in_float(variant["float_ops"]),
        )
        for variant, row in zip(_variants(artifact), boundary_rows(artifact), strict=True)
    ]
    heads = ("variant", "int8 by", "bytes", "compared with", "max |Δ|", "SNR, dB", "cosine", "of the worst sample",
             "top-1 agreement", "redundant operators", "still in float")  # fmt: skip
    return Table(heads, rows)


def left_out_table(artifact: Artifact) -> Table:
    """Show the missing variants: those that failed, with cause and advice, and those that a target does not support."""
    rows: list[tuple[str, ...]] = [
        (row["name"], row["kind"], row["operator"] or "", row["layer"] or "", row["cause"], row["advice"] or "")
        for row in artifact.metrics["left_out"]
    ]
    rows += dict.fromkeys(
        (f"…-{row['precision']}-{row['target']}", "not offered", "", "", row["reason"], "")
        for row in _not_offered(artifact)
    )
    heads = ("left out", "kind", "operator", "layer", "cause", "what to do")
    return Table(heads, rows or [("nothing", *[""] * 5)])


def transposes_table(artifact: Artifact) -> Table:
    """Show every transpose inside a variant's graph, with the layers around it and the bytes that it moves."""
    rows = [
        (name, "when compiled" if one["compiled"] else "in the file", one["where"], count(one["moved_bytes"]))
        for name, redundant in artifact.metrics["debris"].items()
        for one in redundant
        if one["kind"] == "transpose"
    ]
    none = [(f"none in {len(_variants(artifact))} variants", "", "", "")]
    return Table(("transposes inside the graph", "found", "between", "bytes moved"), rows or none)


def ends_table(artifact: Artifact) -> Table:
    """Show the boundaries outside the converters: the checks of the steps before and after conversion.

    These boundaries lead from the raw sample to the network's input, from the calibration samples to the ranges of
    int8, and from the scores to the answer. If a network's branches were merged after training, a further one leads
    from the network with branches to the merged network.
    """
    return Table(
        ("model", "boundary", "samples", "result"),
        [
            (row["model"], f"{row['from']} → {row['to']}", count(row["samples"]), _end(row))
            for row in artifact.metrics["ends"]
        ],
    )


def cosine(value: float) -> str:
    """Format a cosine with as many digits as distinguish it from 1, such as `0.9998` or `0.999997`."""
    return f"{value:.4f}" if value < 0.9999 else f"{value:.7g}"


def _end(row: Mapping[str, Any]) -> str:
    if row["to"] == "ranges":
        return (
            f"at most {percent(row['most_outside'])} of the values outside the range ({row['most_outside_layer']}), "
            f"at least {percent(row['least_used'])} of the range used ({row['least_used_layer']})"
        )
    if row["to"] == "merged":
        return (
            f"max |Δ| {row['max_abs']:.2g}, largest output {row['largest']:.3g}; {count(row['parameters_before'])} "
            f"parameters became {count(row['parameters'])}"
        )
    if "metric" in row:
        return f"{row['metric']} {'-' if row['accuracy'] is None else percent(row['accuracy'])}"
    if row["to"] == "answer":
        return f"accuracy {percent(row['accuracy'])}, with the labels in their best order {percent(row['best_order'])}"
    return f"max |Δ| {row['max_abs']:.2g}, SNR {row['snr_db']:.1f} dB, cosine {cosine(row['cosine'])}"


def missing_names(artifact: Artifact) -> list[str]:
    """Return the names of variants that the config requests, but that were neither made nor left out with a reason."""
    config, metrics = artifact.config, artifact.metrics
    absent = {note.split(":")[0] for note in metrics["notes"]}
    requested = [
        f"{model}-{precision}-{target}"
        for model in config["models"]
        if model not in absent
        for target in config["targets"]
        for precision in config["precisions"]
    ]
    listed = {row["name"] for row in (*_variants(artifact), *metrics["left_out"], *_not_offered(artifact))}
    return [name for name in requested if name not in listed]


def _not_offered(artifact: Artifact) -> list[NotOfferedVariant]:
    rows: list[NotOfferedVariant] = artifact.metrics["not_offered"]
    return rows


def _variants(artifact: Artifact) -> list[ConvertedVariant]:
    rows: list[ConvertedVariant] = json.loads(artifact.file("variants.json").read_text(encoding="utf-8"))
    return rows


def _method(variant: ConvertedVariant) -> str:
    """Describe how a variant became int8, for example `PTQ, percentile, kept in float: 2`.

    The result is empty for float variants.
    """
    if variant["method"] == "float":
        return ""
    recipe = variant["quantization"]
    if recipe is None:
        return str(variant["method"].upper())
    words = [
        "QAT" if variant["method"] == "qat" else "PTQ",
        {"minmax": "min-max"}.get(recipe["ranges"], recipe["ranges"]),
    ]
    if recipe["bias_correction"]:
        words.append(
            "biases not corrected: the target does not support it" if variant["not_offered"] else "biases corrected"
        )
    if recipe["keep_float"]:
        words.append(f"kept in float: {len(recipe['keep_float'])}")
    return ", ".join(words)


def _left_behind(redundant: list[RedundantOperator]) -> str:
    """List the redundant operators in the file and, in brackets, those that are added when it is compiled.

    An example is `pad 2, copy 3 [reshape 1]`.
    """
    in_file, compiled = (
        ", ".join(f"{kind} {number}" for kind, number in Counter(one["kind"] for one in operators).items())
        for operators in ([one for one in redundant if one["compiled"] == when] for when in (False, True))
    )
    return " ".join(part for part in (in_file, f"[{compiled}]" if compiled else "") if part)


def _in_float(operators: list[str]) -> str:
    """List the operators of an int8 file that compute in float, such as `2: MEAN:pool, SOFTMAX:head`.

    The result is empty if there are none.
    """
    return f"{len(operators)}: {_first_names(operators)}" if operators else ""


def grids(convert: Artifact, result: Result) -> list[Grid]:
    """Return the tables in the order of the pipeline."""
    lost = left_out_grid(result)
    return [ends_grid(convert), boundaries_grid(convert), *([lost] if lost else []), left_behind_grid(convert, result)]


def ends_grid(convert: Artifact) -> Grid:
    """Show the boundaries before and after the converters, with the worst network at each."""
    by_boundary: dict[str, list[tuple[float, tuple[str, ...]]]] = defaultdict(list)
    for row, (model, boundary, samples, what) in zip(convert.metrics["ends"], ends_table(convert).rows, strict=True):
        by_boundary[boundary].append((_error_size(row), (boundary, model, samples, what)))
    rows = [max(candidates, key=lambda each: each[0])[1] for candidates in by_boundary.values()]
    columns = ("boundary", "worst network", "samples", "result")
    return grid(
        "Before and after the converters, the worst network at each boundary", columns, rows, "samples", "result"
    )


def boundaries_grid(convert: Artifact) -> Grid:
    """Show each step from network to file. Every column shows the worst of all files at that boundary."""
    by_boundary: dict[tuple[str, str], list[FinalBoundary]] = defaultdict(list)
    for row in boundary_rows(convert):
        by_boundary[row["to"], row["from"]].append(row)
    lines = [
        Line(
            (
                *boundary,
                str(len(crossings)),
                f"{max(row['max_abs'] for row in crossings):.2g}",
                f"{min(row['snr_db'] for row in crossings):.1f}",
                cosine(min(row["worst_cosine"] for row in crossings)),
                percent(min(row["top1_agreement"] for row in crossings)),
                min(crossings, key=lambda row: row["snr_db"])["name"],
            )
        )
        for boundary, crossings in by_boundary.items()
    ]
    columns = (
        "file", "compared with", "files", "max\u00a0|\u2060Δ|", "SNR, dB", "cosine of the worst sample",
        "top-1 agreement", "lowest SNR in",
    )  # fmt: skip
    samples = convert.metrics["check_samples"]
    caption = f"From network to file: the worst of all files, on {count(samples)} validation samples each"
    return Grid(caption, columns, lines, frozenset(columns[2:7]))


def left_out_grid(result: Result) -> Grid | None:
    """Show variants that failed or were wrong, with layer and advice. Returns None if nothing was left out."""
    rows = [
        (row["name"], row["kind"], row["layer"] or row["operator"] or "", row["cause"], row["advice"] or "")
        for row in result["left_out"]
    ]
    columns = ("variant", "kind", "layer", "cause", "what to do")
    caption = "Left out: variants that could not be converted, or gave other answers. The run continued without them"
    return grid(caption, columns, rows, words="layer|cause|what to do") if rows else None


def left_behind_grid(convert: Artifact, result: Result) -> Grid:
    """Show redundant operators in the files that ship, or in the nearest misses if nothing does."""
    redundant: dict[str, list[RedundantOperator]] = convert.metrics["debris"]
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
    with_transposes = sum(_transposes(operators) > 0 for operators in redundant.values())
    columns = (
        "variant", "target", "transposes inside", "bytes moved", "redundant operators, and where",
        *(["in float inside int8"] if has_float else []),
    )  # fmt: skip
    caption = (
        f"Redundant operators that the converters left in the files; {with_transposes or 'none'} of "
        f"{convert.metrics['variants']} files {'have' if with_transposes > 1 else 'has'} a transpose inside the graph"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:4]), frozenset(columns[4:]))


def _error_size(row: Mapping[str, Any]) -> float:
    """Return how large the error of a row is, so that the worst row of a boundary can be found.

    The error is measured in another way at each boundary: by the SNR of the inputs, the share of values outside the
    calibrated range, or the accuracy of the answers. For merged branches, it is the change of the outputs relative to
    the largest output.
    """
    if "snr_db" in row:
        return -float(row["snr_db"])
    if row["to"] == "merged":
        return float(row["max_abs"] / row["largest"])
    return float(row["most_outside"] if "most_outside" in row else -row["accuracy"])


def _transposes(redundant: list[RedundantOperator]) -> int:
    return sum(one["kind"] == "transpose" for one in redundant)


def _summary(redundant: list[RedundantOperator]) -> str:
    """List redundant operators and places, as `copy 2: stem, head; when compiled here: reshape 1: input → stem.1`."""
    parts = []
    for compiled in (False, True):
        places: dict[str, list[str]] = defaultdict(list)
        for one in redundant:
            if one["compiled"] == compiled:
                places[one["kind"]].append(one["where"])
        words = [f"{kind} {len(where)}: {_first_names(where)}" for kind, where in places.items()]
        parts += [("when compiled here: " if compiled else "") + "; ".join(words)] if words else []
    return "; ".join(parts) or "nothing"


def _first_names(where: list[str]) -> str:
    return ", ".join(where[:MAX_NAMES]) + (", …" if len(where) > MAX_NAMES else "")


def boundaries_figure(rows: Sequence[FinalBoundary]) -> Figure:
    """Draw the SNR of each variant's last conversion step as a marker, in a row for each network on each target."""
    lines = list(dict.fromkeys(_line(row) for row in rows))[::-1]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.26 * len(lines) + 1.6), layout="constrained")
        for row in rows:
            axes.plot(
                [row["snr_db"]],
                [lines.index(_line(row))],
                PRECISION_MARKERS[row["precision"]],
                color=DARK,
                markersize=6.5,
            )
        axes.set_yticks(range(len(lines)), lines)
        axes.set(xlabel="SNR against the step before, dB (higher is closer)", ylim=(-0.7, len(lines) - 0.3))
        axes.set_xlim(min(0, *(row["snr_db"] for row in rows)) - 2, None)
        axes.set_title("What each conversion changed")
        there = {row["precision"] for row in rows}
        for precision, marker in PRECISION_MARKERS.items():
            if precision in there:
                axes.plot([], [], marker, color=DARK, label=f"to {precision}")
        figure.legend(loc="outside lower center", ncols=5)
    return close_figure(figure)


def _line(row: FinalBoundary) -> str:
    return str(row["name"]).replace(f"-{row['precision']}-", " → ")
