"""Show the effect of int8 on accuracy: by method, recipe, layer, and choice of calibration samples."""

from __future__ import annotations

import json
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.quantization import (
    CalibrationSize,
    CalibrationStudy,
    LayerSensitivity,
    RecipeRow,
    ValueHistogram,
)
from edgekit.report.figures import ACCENT, DARK, LIGHT, MID, STYLE, close_figure
from edgekit.report.formatting import bound_note, capitalised, percent, percentage_points
from edgekit.report.sections.pruning import tuning_text
from edgekit.report.tables import Table

SIMULATION_OPTION, FILES_OPTION = "quantize.calibration_samples", "convert.calibration_samples"
BOTH_OPTIONS = f"{SIMULATION_OPTION} (simulation) and {FILES_OPTION} (the files)"
STABLE_SHARE = 0.01
"""If the choice of the samples changes at most this share of the answers, it counts as unimportant."""
BLACK = "#222222"
UNIT = {"step": "in steps of its own channel", "value": "in its own units"}


def table(artifact: Artifact) -> Table:
    """Show the float network and every int8 network tried in simulation, compared with the baseline and with float."""
    decision = json.loads(artifact.file("decision.json").read_text(encoding="utf-8"))
    rows = []
    names = {"baseline": "baseline, float", "float": "pruned, float", "ptq": "PTQ int8"}
    if decision["qat_drop"]:
        names["qat"] = "QAT int8"
    if decision["mixed_drop"]:
        names["mixed"] = "int8, most sensitive layers in float"
    for key, name in names.items():
        drop = decision.get(f"{key}_drop", {"drop_pp": 0.0, "bound_pp": None})
        figures = (
            percent(decision[f"{key}_accuracy"]),
            percentage_points(drop["drop_pp"]),
            percentage_points(drop["bound_pp"]),
        )
        below = decision.get(f"{key}_below_float")
        below_float = (percentage_points(below["drop_pp"]), percentage_points(below["bound_pp"])) if below else ("", "")
        rows.append((name, *figures, *below_float, "chosen" if decision["method"] == key else ""))
    measured = ("validation accuracy", "drop, pp", "at most", "below float, pp", "at most")
    heads = ("network (int8: in simulation)", *measured, "")
    more = f"; {artifact.metrics['shared_scale']}" if "shared_scale" in artifact.metrics else ""
    tuned = f"QAT: {tuning_text(artifact)}" if decision["qat_drop"] else f"QAT {decision['against_qat']}"
    return Table(heads, rows, f"{bound_note(artifact.config['budget']['accuracy_confidence'])}; {tuned}{more}")


def sensitivity_rows(artifact: Artifact) -> list[LayerSensitivity]:
    """Return one row per layer, the most sensitive first."""
    rows: list[LayerSensitivity] = json.loads(artifact.file("sensitivity.json").read_text(encoding="utf-8"))["layers"]
    return rows


def sensitivity_table(artifact: Artifact, most: int = 10) -> Table:
    """Show the layers that cost the most accuracy if they are the only layer in int8."""
    rows = [
        (row["layer"], row["kind"], f"{row['snr_db']:.1f}", percentage_points(row["drop_pp"]))
        for row in sensitivity_rows(artifact)[:most]
    ]
    return Table(("layer", "kind", "SNR, dB", "drop, pp"), rows)


def recipes_table(artifact: Artifact) -> Table:
    """Show every PTQ recipe, and why it was selected or rejected."""
    tried: list[RecipeRow] = artifact.metrics["recipes"]
    rows = [
        (
            row["recipe"],
            percent(row["validation_accuracy"]),
            percentage_points(row["drop_pp"]),
            percentage_points(row["bound_pp"]),
            f"selected: {row['reason']}" if row["kept"] else row["reason"],
        )
        for row in tried
    ]
    return Table(("PTQ recipe, in simulation", "validation accuracy", "drop, pp", "at most", "why"), rows)


def mixed_table(artifact: Artifact) -> Table:
    """Show every step of keeping layers in float, or why none was selected."""
    metrics = artifact.metrics
    rows = [
        (
            ", ".join(row["keep_float"]),
            percent(row["validation_accuracy"]),
            percentage_points(row["drop_pp"]),
            percentage_points(row["bound_pp"]),
            "inside the budget" if row["inside_budget"] else row["reason"],
            "selected" if row["kept"] else "",
        )
        for row in metrics["mixed"]
    ]
    if not rows:
        return Table(("layers kept in float", "why"), [("none", metrics["against_mixed"])])
    return Table(("layers kept in float", "validation accuracy", "drop, pp", "at most", "budget", ""), rows)


def calibration_rows(artifact: Artifact) -> list[CalibrationSize]:
    """Return one row for each number of samples in the study."""
    return _calibration(artifact)["sizes"]


def calibration_table(artifact: Artifact) -> Table:
    """Show, for each number of calibration samples, how close two draws are to the float network and to each other."""
    rows = [
        (
            str(row["samples"]),
            *(f"{value:.1f}" for value in row["snr_db"]),
            f"{row['between_snr_db']:.1f}",
            *(percent(value) for value in row["accuracy"]),
            percent(row["disagreement"]),
            ""
            if not row["shared_samples"]
            else f"not evaluated: both draws have {row['shared_samples']} samples in common",
        )
        for row in calibration_rows(artifact)
    ]
    heads = ("samples", "SNR of A, dB", "of B", "A against B", "accuracy of A", "of B", "answers that differ", "")
    return Table(heads, rows or [("none", *[""] * (len(heads) - 1))])


def calibration_sentence(artifact: Artifact) -> str:
    """Say what the study means for this run's number of calibration samples.

    Pairs of draws that have samples in common are ignored, because the common samples alone make the two agree more.
    """
    study, used = _calibration(artifact), artifact.metrics["calibration_samples"]
    rows = [row for row in study["sizes"] if not row["shared_samples"]]
    left_out = ", ".join(map(str, study["too_large"]))
    omitted = (
        f" Left out: {left_out}, because the calibration split has only {study['calibration_split']} samples."
        if left_out
        else ""
    )
    if not rows:
        return f"No draws can be compared: the split is too small for two of them of any size in study_sizes.{omitted}"
    stable = [row["samples"] for place, row in enumerate(rows) if _stable(rows[place:])]
    observed = (
        f"Of {study['validation_samples']} answers, the choice of the calibration samples changes "
        + " and ".join(
            f"{percent(row['disagreement'])} ({_spread_db(row):.1f} dB of SNR) with {row['samples']} samples"
            for row in (rows[place] for place in dict.fromkeys((0, len(rows) - 1)))
        )
    )
    limit = f"{100 * STABLE_SHARE:g} %"
    if not stable:
        more = f"More than the {used} samples of the simulation may help: raise {BOTH_OPTIONS}"
        return f"{observed}. That is more than {limit}. {more}.{omitted}"
    verdict = f"enough, and the same number will do for the files ({FILES_OPTION})"
    if used < stable[0]:
        verdict = f"fewer than that: raise {BOTH_OPTIONS} to {stable[0]}"
    conclusion = f"it changes at most {limit}. The {used} samples of the simulation ({SIMULATION_OPTION}) are {verdict}"
    return f"{observed}. From {stable[0]} samples on, {conclusion}.{omitted}"


def histogram_rows(artifact: Artifact) -> list[ValueHistogram]:
    """Return histograms of weights and activations of the most and the least sensitive layer, in float and int8."""
    rows: list[ValueHistogram] = json.loads(artifact.file("histograms.json").read_text(encoding="utf-8"))
    return rows


def _calibration(artifact: Artifact) -> CalibrationStudy:
    study: CalibrationStudy = json.loads(artifact.file("calibration.json").read_text(encoding="utf-8"))
    return study


def _stable(rows: list[CalibrationSize]) -> bool:
    return all(row["disagreement"] <= STABLE_SHARE for row in rows)


def _spread_db(row: CalibrationSize) -> float:
    first, second = row["snr_db"]
    return float(abs(first - second))


def histograms_figure(rows: Sequence[ValueHistogram]) -> Figure | None:
    """Draw weights and inputs of each layer on a log scale: float filled, int8 as steps, ends of the range dashed."""
    if not rows:
        return None
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    parts = ("weights", "activations")
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(layers), 2, figsize=(7.6, 2.5 * len(layers) + 0.5), layout="constrained", squeeze=False
        )
        for axes in grid.flat:
            axes.set_visible(False)
        for row in rows:
            _values(grid[layers.index(row["layer"])][parts.index(row["part"])], row)
        shown = next(axes for axes in grid.flat if axes.get_visible())
        figure.legend(*shown.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return close_figure(figure)


def calibration_figure(rows: Sequence[CalibrationSize]) -> Figure | None:
    """Draw, for each size, the SNR of two random draws against float and each other, and how many answers differ."""
    if not rows:
        return None
    sizes = [row["samples"] for row in rows]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.1), layout="constrained")
        for draw, marker, colour in ((0, "o", DARK), (1, "s", MID)):
            values = [row["snr_db"][draw] for row in rows]
            left.plot(
                sizes, values, f"-{marker}", color=colour, markersize=5.5, label=f"draw {'AB'[draw]} against float"
            )
        between = [row["between_snr_db"] for row in rows]
        left.plot(sizes, between, "--^", color=ACCENT, markersize=5.5, label="A against B")
        left.set(ylabel="SNR of the logits, dB")
        left.set_title("How close to float")
        shares = [row["disagreement"] for row in rows]
        right.plot(sizes, shares, "-D", color=BLACK, markersize=5.5)
        right.set(ylabel="share of validation answers", ylim=(0, 1.25 * max(*shares, 0.004)))
        right.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        right.set_title("Answers that differ between A and B")
        for axes in (left, right):
            axes.set(xlabel="calibration samples (log scale)", xscale="log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.margins(x=0.12)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return close_figure(figure)


def _values(axes: Axes, row: ValueHistogram) -> None:
    axes.set_visible(True)
    edges = row["edges"]
    axes.stairs(row["float"], edges, fill=True, color=LIGHT, label="float")
    axes.stairs(row["int8"], edges, color=BLACK, linewidth=1.2, label="int8")
    for place, end in enumerate(row["range"]):
        label = None if place else "ends of the int8 range"
        axes.axvline(end, color=ACCENT, linewidth=1.2, linestyle="--", label=label)
    most = max(*row["float"], *row["int8"])
    axes.set(yscale="log", ylim=(0.7, 12 * most), ylabel="values (log scale)")
    axes.set_xlabel(f"{_part_name(row)}, {UNIT[row['unit']]}", fontsize=8.5)
    sensitive = "most sensitive" if row["most_sensitive"] else "least sensitive"
    axes.set_title(f"{row['layer']}, {sensitive}: {_part_name(row)}", fontsize=9.5)
    clipped = f"{row['clipped'] / max(1, sum(row['float'])):.2%} clipped"
    axes.text(0.5, 0.97, f"{row['levels_used']} levels used, {clipped}", transform=axes.transAxes,
              ha="center", va="top", fontsize=8)  # fmt: skip


def _part_name(row: ValueHistogram) -> str:
    return "weights" if row["part"] == "weights" else "inputs"


def sensitivity_figure(rows: Sequence[LayerSensitivity], most: int = 20) -> Figure:
    """Draw the SNR with only one layer in int8. The layers with the shortest bars are the ones to keep in float."""
    shown = list(rows[:most])[::-1]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.26 * len(shown) + 1.2), layout="constrained")
        bars = axes.barh([row["layer"] for row in shown], [row["snr_db"] for row in shown], color=DARK)
        axes.bar_label(bars, [f"{row['drop_pp']:+.2f} pp" for row in shown], padding=3, fontsize=8)
        axes.set(xlabel="output SNR with only this layer in int8, dB (label: drop in validation accuracy)")
        axes.set_title("Sensitivity by layer, most sensitive first")
        axes.margins(x=0.14)
        axes.grid(axis="y", visible=False)
    return close_figure(figure)


def shared_scale_lines(quantize: Artifact | None) -> list[str]:
    """Return a line if int8 uses a single scale for outputs of different ranges."""
    text = quantize.metrics.get("shared_scale", "") if quantize else ""
    return [f"{capitalised(text)}."] if text else []
