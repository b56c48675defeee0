"""Tables and pictures' rows of quantization: recipes, layers kept in float, the choice of samples, values counted."""

from __future__ import annotations

import json

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.quantization import CalibrationSize, CalibrationStudy, Histogram, RecipeRow
from edgekit.report.formatting import Table, percent, points

SIMULATION_OPTION, FILES_OPTION = "quantize.calibration_samples", "convert.calibration_samples"
BOTH_OPTIONS = f"{SIMULATION_OPTION} (simulation) and {FILES_OPTION} (the files)"
STABLE_SHARE = 0.01
"""Of the answers: where the draw of the samples changes no more of them, it is said to matter little."""


def recipes(artifact: Artifact) -> Table:
    """Every PTQ recipe, and why it was kept or not."""
    tried: list[RecipeRow] = artifact.metrics["recipes"]
    rows = [
        (
            row["recipe"],
            percent(row["validation_accuracy"]),
            points(row["drop_pp"]),
            points(row["bound_pp"]),
            f"kept: {row['reason']}" if row["kept"] else row["reason"],
        )
        for row in tried
    ]
    return Table(("PTQ recipe, in simulation", "validation accuracy", "drop, pp", "at most", "why"), rows)


def mixed_precision(artifact: Artifact) -> Table:
    """Every step of keeping layers in float, or why none was taken."""
    found = artifact.metrics
    rows = [
        (
            ", ".join(row["keep_float"]),
            percent(row["validation_accuracy"]),
            points(row["drop_pp"]),
            points(row["bound_pp"]),
            "inside the budget" if row["inside_budget"] else row["reason"],
            "chosen" if row["kept"] else "",
        )
        for row in found["mixed"]
    ]
    if not rows:
        return Table(("layers kept in float", "why"), [("none", found["against_mixed"])])
    return Table(("layers kept in float", "validation accuracy", "drop, pp", "at most", "budget", ""), rows)


def calibration_rows(artifact: Artifact) -> list[CalibrationSize]:
    """One row for each size of the study."""
    return _calibration(artifact)["sizes"]


def calibration(artifact: Artifact) -> Table:
    """Two draws of calibration samples of each size: how close each is to float, and to the other."""
    rows = [
        (
            str(row["samples"]),
            *(f"{value:.1f}" for value in row["snr_db"]),
            f"{row['between_snr_db']:.1f}",
            *(percent(value) for value in row["accuracy"]),
            percent(row["disagreement"]),
            "" if not row["shared_samples"] else f"not judged: {row['shared_samples']} samples are in both",
        )
        for row in calibration_rows(artifact)
    ]
    heads = ("samples", "SNR of A, dB", "of B", "A against B", "accuracy of A", "of B", "answers that differ", "")
    return Table(heads, rows or [("none", *[""] * (len(heads) - 1))])


def calibration_conclusion(artifact: Artifact) -> str:
    """What the study says of this run's own number of samples; draws that share samples agree for that alone."""
    study, used = _calibration(artifact), artifact.metrics["calibration_samples"]
    rows = [row for row in study["sizes"] if not row["shared_samples"]]
    left_out = ", ".join(map(str, study["too_large"]))
    omitted = (
        f" Left out: {left_out}, because the calibration split has {study['calibration_split']}." if left_out else ""
    )
    if not rows:
        return f"No draws can be judged: the split is too small for two draws of any size in study_sizes.{omitted}"
    stable = [row["samples"] for place, row in enumerate(rows) if _stable(rows[place:])]
    seen = f"Of {study['validation_samples']} answers the draw of the samples changes " + " and ".join(
        f"{percent(row['disagreement'])} ({_spread_db(row):.1f} dB of SNR) with {row['samples']}"
        for row in (rows[place] for place in dict.fromkeys((0, len(rows) - 1)))
    )
    limit = f"{100 * STABLE_SHARE:g} %"
    if not stable:
        more = f"More samples than the {used} of the simulation may help: raise {BOTH_OPTIONS}"
        return f"{seen}. That is more than {limit}. {more}.{omitted}"
    enough = f"enough, and so many for the files ({FILES_OPTION})"
    if used < stable[0]:
        enough = f"fewer than that: raise {BOTH_OPTIONS} to {stable[0]}"
    held = f"it changes no more than {limit}. The {used} of the simulation ({SIMULATION_OPTION}) are {enough}"
    return f"{seen}. From {stable[0]} on, {held}.{omitted}"


def histogram_rows(artifact: Artifact) -> list[Histogram]:
    """Weights and activations of the most and the least sensitive layer, counted before and after int8."""
    rows: list[Histogram] = json.loads(artifact.file("histograms.json").read_text(encoding="utf-8"))
    return rows


def _calibration(artifact: Artifact) -> CalibrationStudy:
    found: CalibrationStudy = json.loads(artifact.file("calibration.json").read_text(encoding="utf-8"))
    return found


def _stable(rows: list[CalibrationSize]) -> bool:
    return all(row["disagreement"] <= STABLE_SHARE for row in rows)


def _spread_db(row: CalibrationSize) -> float:
    first, second = row["snr_db"]
    return float(abs(first - second))
