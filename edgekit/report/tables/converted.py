"""The tables of notebook 05: what every variant became, and which were left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.conversion import ConvertedVariant, LastBoundary, LeftBehind, NotOffered
from edgekit.report.formatting import Table, count, percent

MOST_NAMES = 4


def boundary_rows(artifact: Artifact) -> list[LastBoundary]:
    """The last boundary of each variant, with its name, target and precision."""
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


def convert(artifact: Artifact) -> Table:
    """Every variant: its size, how far its outputs are from the step before, the redundant operators in the
    file (in brackets: those that this machine adds when it compiles it), what in it still computes in float.
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


def left_out(artifact: Artifact) -> Table:
    """What is not among the variants: what failed, with operator, layer, cause and what to do; what is not offered."""
    rows: list[tuple[str, ...]] = [
        (row["name"], row["kind"], row["operator"] or "", row["layer"] or "", row["cause"], row["advice"] or "")
        for row in artifact.metrics["left_out"]
    ]
    rows += dict.fromkeys(
        (f"…-{row['precision']}-{row['target']}", "not offered", "", "", row["reason"], "")
        for row in _not_offered(artifact)
    )
    heads = ("left out", "because of", "operator", "layer", "cause", "what to do")
    return Table(heads, rows or [("nothing", *[""] * 5)])


def transposes(artifact: Artifact) -> Table:
    """Every transpose inside a variant's graph, between which layers, and how many bytes it reads and writes."""
    rows = [
        (name, "when compiled" if one["compiled"] else "in the file", one["where"], count(one["moved_bytes"]))
        for name, found in artifact.metrics["debris"].items()
        for one in found
        if one["kind"] == "transpose"
    ]
    none = [(f"none in {len(_variants(artifact))} variants", "", "", "")]
    return Table(("transposes inside the graph", "found", "between", "bytes moved"), rows or none)


def ends(artifact: Artifact) -> Table:
    """The boundaries before and behind the converters: raw sample to input, calibration to ranges, scores to answer.

    Of a network whose branches were merged after its training, that too.
    """
    return Table(
        ("model", "boundary", "samples", "what was found"),
        [
            (row["model"], f"{row['from']} → {row['to']}", count(row["samples"]), _end(row))
            for row in artifact.metrics["ends"]
        ],
    )


def cosine(value: float) -> str:
    """With as many nines as tell it from 1: `0.9998`, `0.999997`."""
    return f"{value:.4f}" if value < 0.9999 else f"{value:.7g}"


def _end(row: Mapping[str, Any]) -> str:
    if row["to"] == "ranges":
        return (
            f"{percent(row['most_outside'])} of the values outside at most ({row['most_outside_layer']}), "
            f"{percent(row['least_used'])} of the range used at least ({row['least_used_layer']})"
        )
    if row["to"] == "merged":
        return (
            f"max |Δ| {row['max_abs']:.2g}, the largest output {row['largest']:.3g}; {count(row['parameters_before'])} "
            f"parameters became {count(row['parameters'])}"
        )
    if "metric" in row:
        return f"{row['metric']} {'-' if row['accuracy'] is None else percent(row['accuracy'])}"
    if row["to"] == "answer":
        return f"{percent(row['accuracy'])} right, {percent(row['best_order'])} in the best order of labels"
    return f"max |Δ| {row['max_abs']:.2g}, SNR {row['snr_db']:.1f} dB, cosine {cosine(row['cosine'])}"


def missing(artifact: Artifact) -> list[str]:
    """Names of the variants that the config asks for, and that are neither there nor left out with a reason."""
    config, found = artifact.config, artifact.metrics
    absent = {note.split(":")[0] for note in found["notes"]}
    asked = [
        f"{model}-{precision}-{target}"
        for model in config["models"]
        if model not in absent
        for target in config["targets"]
        for precision in config["precisions"]
    ]
    known = {row["name"] for row in (*_variants(artifact), *found["left_out"], *_not_offered(artifact))}
    return [name for name in asked if name not in known]


def _not_offered(artifact: Artifact) -> list[NotOffered]:
    found: list[NotOffered] = artifact.metrics["not_offered"]
    return found


def _variants(artifact: Artifact) -> list[ConvertedVariant]:
    found: list[ConvertedVariant] = json.loads(artifact.file("variants.json").read_text(encoding="utf-8"))
    return found


def _method(variant: ConvertedVariant) -> str:
    """`PTQ, percentile, kept in float: 2`; nothing for what is float anyway."""
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
        words.append("biases not corrected: not offered" if variant["not_offered"] else "biases corrected")
    if recipe["keep_float"]:
        words.append(f"kept in float: {len(recipe['keep_float'])}")
    return ", ".join(words)


def _left_behind(redundant: list[LeftBehind]) -> str:
    """`pad 2, copy 3 [reshape 1]`; nothing where there is none."""
    in_file, compiled = (
        ", ".join(f"{kind} {number}" for kind, number in Counter(one["kind"] for one in found).items())
        for found in ([one for one in redundant if one["compiled"] == when] for when in (False, True))
    )
    return " ".join(part for part in (in_file, f"[{compiled}]" if compiled else "") if part)


def _in_float(operators: list[str]) -> str:
    """`2: MEAN:pool, SOFTMAX:head`; nothing where all computes in integers, or nothing was to."""
    if not operators:
        return ""
    more = ", …" if len(operators) > MOST_NAMES else ""
    return f"{len(operators)}: {', '.join(operators[:MOST_NAMES])}{more}"
