"""The outcome of a run as text: the winner, or the nearest miss, and the paths of all outputs.

A finished run prints it at every start, so nothing here imports a framework, not even numpy.
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
from edgekit.measure.forecast import way_of
from edgekit.report import checks, html
from edgekit.report.formatting import ends, faster, milliseconds, points
from edgekit.report.result import RESULT


def message(result: Result) -> str:
    """The winner with its figures; if the budget was missed, the nearest miss and by how much."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return checks.missed_message(result["nearest_miss"], result["budget"])
    return (
        f"{verdict['winner']} wins: p50 {_p50(verdict)}; "
        f"{_against(verdict, 'speedup_vs_eager', way_of(result['variants'][0]['interpreter']))}; "
        f"{_against(verdict, 'speedup_vs_post_training_baseline', 'the best post-training-quantized baseline')}; "
        f"drop {points(verdict['drop_validation_pp'])} pp on validation, at most "
        f"{points(verdict['bound_validation_pp'])} pp at {100 * verdict['confidence']:g} % confidence, "
        f"{points(verdict['drop_test_pp'])} pp on test."
    )


def unmet(result: Result) -> Iterator[tuple[str, str]]:
    """Each target without a bundle in a run that has others, and what came nearest there."""
    if result["verdict"]["met"]:
        empty = result.get("targets_left_out", {})
        for target, nearest in result["unmet"].items():
            yield target, f"{empty.get(target) or checks.missed_message(nearest, result['budget'])}."


def lost(result: Result) -> list[str]:
    """A line for each variant that could not be made, of the targets that have others."""
    empty = result.get("targets_left_out", {})
    return left_out.describe_left_out([row for row in result["left_out"] if row["target"] not in empty])


def paths(result: Result, folder: Path, *, drawn: bool) -> Iterator[str]:
    """Lines that say where bundles, runner, notebooks, result and report of the run in `folder` lie.

    `drawn`: whether the report is there and current.
    """
    bundles = stage_folder(folder, "bundle")
    for entry in result["bundles"].values():
        yield f"Bundle     {bundles / entry['file']}"
    if result["bundles"]:
        for label, file in (("Runner", "edgerun.pyz"), *(("SBOM", name) for name in EVIDENCE_FILES)):
            yield f"{label:<10} {bundles / file}"
    for stage in (stage for stage in STAGES if stage in result["stages"]):
        failed = failed_notebook(folder, stage)  # a copy of an earlier, successful run may stand beside it
        yield f"Notebook   {failed if failed.exists() else folder / 'notebooks' / notebook_name(stage)}"
    if (folder / earlier_bundles.EARLIER_BUNDLES).exists():
        yield f"The bundles of an earlier run lie in {folder / earlier_bundles.EARLIER_BUNDLES}."
    yield f"Result     {folder / RESULT}"
    if drawn:
        yield f"Report     {folder / html.PAGE}"


def _p50(verdict: BudgetMet) -> str:
    here = f"{milliseconds(verdict['p50_ms'])} ms"
    there = verdict.get("device")
    if there is None:
        return here
    return f"{milliseconds(there['p50_ms'])} ms on {there['host']} ({there['where']}); on this machine {here}"


def _against(verdict: Mapping[str, Any], key: str, what: str) -> str:
    found = ends(verdict, key)
    return f"against {what} {faster(*found)}" if found else f"{what} is not among the variants"
