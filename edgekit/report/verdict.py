"""Describe the outcome of a run: the winner or the nearest miss, and the paths of all outputs.

A finished run prints this whenever it is started again. To do that quickly, this module imports no framework, not
even NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.core import earlier_bundles, left_out
from edgekit.core.artifacts import EVIDENCE_FILES
from edgekit.core.config import STAGES
from edgekit.core.run_folder import failed_notebook, notebook_name, stage_folder
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import BudgetMet
from edgekit.measure.forecast import baseline_runtime
from edgekit.report import checks, html
from edgekit.report.formatting import faster, milliseconds, percentage_points, ratio_with_bounds
from edgekit.report.result import RESULT


def verdict_message(result: Result) -> str:
    """Describe the winner with its figures, or the nearest miss and by how much it missed."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return checks.missed_message(result["nearest_miss"], result["budget"])
    return (
        f"{verdict['winner']} wins: p50 {_p50(verdict)}; "
        f"{_speedup_text(verdict, 'speedup_vs_eager', baseline_runtime(result['variants'][0]['interpreter']))}; "
        f"{_speedup_text(verdict, 'speedup_vs_post_training_baseline', 'the best post-training-quantized baseline')}; "
        f"drop {percentage_points(verdict['drop_validation_pp'])} pp on validation, at most "
        f"{percentage_points(verdict['bound_validation_pp'])} pp at {100 * verdict['confidence']:g} % confidence, "
        f"{percentage_points(verdict['drop_test_pp'])} pp on test."
    )


def unmet_targets(result: Result) -> Iterator[tuple[str, str]]:
    """Yield each target that has no bundle, and its nearest miss. Nothing is yielded if no target ships."""
    if result["verdict"]["met"]:
        targets_left_out = result.get("targets_left_out", {})
        for target, nearest in result["unmet"].items():
            yield target, f"{targets_left_out.get(target) or checks.missed_message(nearest, result['budget'])}."


def left_out_lines(result: Result) -> list[str]:
    """Return a line for each variant that could not be converted. Targets that were left out altogether are skipped."""
    targets_left_out = result.get("targets_left_out", {})
    return left_out.describe_left_out([row for row in result["left_out"] if row["target"] not in targets_left_out])


def output_paths(result: Result, folder: Path, *, has_report: bool) -> Iterator[str]:
    """Yield lines with the paths of bundles, runner, notebooks, result and report of the run in `folder`.

    `has_report` says whether the report exists and is current.
    """
    bundles = stage_folder(folder, "bundle")
    for entry in result["bundles"].values():
        yield f"Bundle     {bundles / entry['file']}"
    if result["bundles"]:
        for label, file in (("Runner", "edgerun.pyz"), *(("SBOM", name) for name in EVIDENCE_FILES)):
            yield f"{label:<10} {bundles / file}"
    for stage in (stage for stage in STAGES if stage in result["stages"]):
        failed = failed_notebook(folder, stage)  # the executed notebook of an earlier run may exist, too
        yield f"Notebook   {failed if failed.exists() else folder / 'notebooks' / notebook_name(stage)}"
    if (folder / earlier_bundles.EARLIER_BUNDLES).exists():
        yield f"The bundles of an earlier run lie in {folder / earlier_bundles.EARLIER_BUNDLES}."
    yield f"Result     {folder / RESULT}"
    if has_report:
        yield f"Report     {folder / html.PAGE}"


def _p50(verdict: BudgetMet) -> str:
    local = f"{milliseconds(verdict['p50_ms'])} ms"
    device = verdict.get("device")
    if device is None:
        return local
    return f"{milliseconds(device['p50_ms'])} ms on {device['host']} ({device['where']}); on this machine {local}"


def _speedup_text(verdict: Mapping[str, Any], key: str, reference: str) -> str:
    values = ratio_with_bounds(verdict, key)
    return f"against {reference} {faster(*values)}" if values else f"{reference} is not among the variants"
