"""Tables and pictures' rows of pruning: predicted and measured speed-up, unstructured sparsity, where zeros are."""

from __future__ import annotations

import numpy as np

from edgekit.core.artifacts import Artifact
from edgekit.core.rows.pruned import CutRow, Latencies, Pattern, StepLatency
from edgekit.report.formatting import Table, count, faster, milliseconds, percent, span, speedup, times
from edgekit.stages.benchmark.winners import SPARSITY_DECISION

NOTHING = "–"
"""In the place of what was not timed."""
MOST_OUTPUTS, MOST_INPUTS = 64, 144
"""Of a layer's weights so many rows and columns are shown, for each to be a pixel."""


def latencies(artifact: Artifact) -> Latencies:
    """`steps` and `sparse` as `stages/prune/latency.py` left them; both empty where nothing was measured."""
    return {"steps": [], "sparse": [], **(artifact.metrics["latency"] or {})}


def speed(artifact: Artifact) -> Table:
    """Every structured step: the speed-up that its MACs predict, the measured ones, and the share of the former.

    What could not be converted, and so was not timed, stands in the title.
    """
    rows = latencies(artifact)["steps"]
    places = list(dict.fromkeys((row["target"], row["precision"]) for row in rows))
    lines = []
    for step in sorted({row["step"] for row in rows} - {0}):
        own = {(row["target"], row["precision"]): row for row in rows if row["step"] == step}
        best = max(own.values(), key=lambda row: row["measured"])
        first = next(iter(own.values()))
        lines.append(
            (
                str(step),
                count(first["macs"]),
                times(first["predicted"]),
                *(_measured(own[place]) if place in own else NOTHING for place in places),
                f"{_measured(best)} {best['target']} {best['precision']}",
            )
        )
    heads = ("step", "MACs", "predicted", *(f"{target} {precision}" for target, precision in places), "best")
    return Table(heads, lines, _title(artifact, "Measured speed-up over step 0 · as a share of the predicted one"))


def cuts(artifact: Artifact) -> Table:
    """Every cut that was timed and surely saves time, and which was taken; no row where channels go by a ratio."""
    rows: list[CutRow] = artifact.metrics.get("cuts", [])
    if not rows:
        replayed = artifact.metrics.get("replayed", False)
        why = "the cuts are those of a record" if replayed else "channels are removed by prune.ratio"
        return Table((), [], f"No cut was timed: {why}")
    lines = [
        (
            str(row["step"]),
            row["group"],
            str(row["width"]),
            f"{row['of_before']:.3f} ({span(row['low'], row['high'])})",
            f"{row['of_student']:.3f}",
            "" if row["validation_accuracy"] is None else percent(row["validation_accuracy"]),
            "taken" if row["taken"] else "",
        )
        for row in rows
        if row["high"] < 1
    ]
    slower = len(rows) - len(lines)
    heads = ("step", "channels of", "left", "p50, of the one before", "of the student", "before tuning", "")
    title = f"{len(rows)} cuts timed for {rows[0]['target']} {rows[0]['precision']}; {slower} not surely faster"
    return Table(heads, lines, title)


def zeros(artifact: Artifact) -> Table:
    """The sparse network beside the student it was made from, converted and timed together."""
    rows = [
        (
            f"{row['target']} {row['precision']}",
            *map(count, (row["dense_bytes"], row["sparse_bytes"])),
            *map(count, (row["dense_zipped_bytes"], row["sparse_zipped_bytes"])),
            percent(row["sparse_zipped_bytes"] / row["dense_zipped_bytes"]),
            *map(milliseconds, (row["dense_p50_ms"], row["sparse_p50_ms"])),
            f"{times(row['measured'])} ({span(row['measured_low'], row['measured_high'])})",
            faster(row["measured"], row["measured_low"], row["measured_high"]),
        )
        for row in latencies(artifact)["sparse"]
    ]
    heads = ("file", "dense, bytes", "sparse", "dense, compressed", "sparse", "share", "dense, ms", "sparse",
             "speed-up", "")  # fmt: skip
    step = (artifact.metrics["latency"] or {}).get("sparse_step", 0)
    share = artifact.metrics["unstructured_steps"][step]["sparsity"]
    return Table(heads, rows, _title(artifact, f"Step {step}: {share:.0%} of the weights are zero"))


def gained(benchmark: Artifact) -> Table:
    """Every sparse variant that ships beside its dense counterpart, and whether it is faster or smaller."""
    decision = next((each for each in benchmark.metrics["decisions"] if each["decision"] == SPARSITY_DECISION), None)
    out = decision["chosen"] if decision else ()
    rows = [
        (
            row["name"],
            row["dense"],
            f"{times(row['ratio'])} ({span(row['ratio_low'], row['ratio_high'])})",
            percent(row["bytes_share"]) if "bytes_share" in row else "",
            percent(row["zipped_share"]),
            "rejected: no speed-up" if row["name"] in out else "kept as a candidate",
        )
        for row in (decision["candidates"] if decision else ())
    ]
    margin = 1 + benchmark.config["tie_margin"]
    title = (
        f"Unstructured sparsity is kept where the interval is above {margin:g}, or where the file is smaller by as "
        "much and not slower"
    )
    return Table(("with zeros", "without", "times as fast", "bytes, share", "compressed, share", ""), rows, title)


def patterns(artifact: Artifact) -> list[Pattern]:
    """One row for each layer of the sparse network, by name: `name`, `zeros`, and the corner of the map to show.

    `zeros` is the share of zero weights; `nonzero` is (outputs, inputs * kernel) bool, at most 64 x 144 of `shape`.
    """
    from safetensors.numpy import load

    tensors = load(artifact.file("sparse/weights.safetensors").read_bytes())
    rows: list[Pattern] = []
    for name in sorted((name for name in tensors if _is_weight(name, tensors[name])), key=_natural):
        flat = tensors[name].reshape(len(tensors[name]), -1)
        corner = flat[:MOST_OUTPUTS, :MOST_INPUTS] != 0
        rows.append(
            {
                "name": name.removesuffix(".weight"),
                "zeros": float(np.mean(flat == 0)),
                "weights": flat.size,
                "shape": flat.shape,
                "nonzero": corner,
            }
        )
    return rows


def _is_weight(name: str, tensor: np.ndarray) -> bool:
    return name.endswith(".weight") and tensor.ndim > 1


def _natural(name: str) -> list[tuple[int, int | str]]:
    """`blocks.2` before `blocks.10`."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in name.split(".")]


def _measured(row: StepLatency) -> str:
    ends = (row["measured"], row["measured_low"], row["measured_high"])
    return f"{speedup(*ends)} · {row['gain_share']:.2f}"


def _title(artifact: Artifact, text: str) -> str:
    latency = artifact.metrics["latency"]
    if latency is None:
        return "Not measured: prune.measure is false"
    if "failed" in latency:
        return f"Not measured: {latency['failed']}"
    lost = [
        f"{row['model']} {row['target']} {row['precision']}: {row['reason']}" for row in latency.get("left_out", [])
    ]
    return "; not timed: ".join([text, *lost])
