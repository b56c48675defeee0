"""Run several configs in parallel, each as `edgekit run CONFIG` in a process of its own, and summarize them.

Stages that measure take turns on this machine, so that no run disturbs the latencies of another. Every bundle then has
the same sha256 as if its config had run alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core.errors import BudgetMissed, ConfigError, EdgekitError
from edgekit.core.hashing import sha256_file
from edgekit.workbook.plan import Plan, load_plan
from edgekit.workbook.run import sigterm_as_interrupt
from edgekit.workbook.workers import Job, open_pool

FUNCTION = f"{__name__}:run_one"
BUNDLES = "bundles"


@dataclass(frozen=True)
class RunSummary:
    """The outcome of one config.

    `exit_code` is that of `edgekit run` for this config alone, and `message` is a sentence or the text of an error.
    `seconds` is the time on its worker. `bundles` maps file names to sha256 digests.
    """

    name: str
    exit_code: int
    message: str
    seconds: float
    bundles: dict[str, str]


def check_names(plans: Sequence[Plan]) -> None:
    """Check that no two configs share a name, because both would write to the same folder.

    Raises
    ------
    ConfigError
        Two configs have the same name.
    """
    paths: dict[str, Path] = {}
    for plan in plans:
        name = plan.run.name
        if name in paths:
            raise ConfigError(
                f"{paths[name]} and {plan.path}: both are named {name!r}, so both would write to one folder; give "
                f"one of them a different name"
            )
        paths[name] = plan.path


def run_several(
    plans: Sequence[Plan],
    out: Path,
    *,
    force: Collection[str] = (),
    workers: int = 1,
    on: str | None = None,
    caches: Sequence[str] = (),
    on_line: Callable[[str, str], None],
    on_end: Callable[[RunSummary], None],
) -> list[RunSummary]:
    """Run all plans, even if some fail, and return their summaries in the order of the plans.

    `workers` and `on` are those of `open_pool`. `on_line` is called with the name of a run and a line of its progress,
    `on_end` with each summary when its run ends.

    Raises
    ------
    ConfigError
        Two plans have the same name, or the pool cannot be opened.
    """
    check_names(plans)
    jobs = [
        Job(
            plan.run.name,
            FUNCTION,
            {
                "config": str(plan.path),
                "settings": plan.settings,
                "out": str(out.resolve()),
                "force": sorted(force),
                "working_folder": str(Path.cwd()),
                "caches": list(caches),
            },
        )
        for plan in plans
    ]
    with sigterm_as_interrupt(), open_pool(workers, on, out, on_line) as pool:
        results = pool.run(
            jobs,
            lambda number, result: on_end(_summary(plans[number], result)),
            lambda number, result: _bundle_mismatch(out / plans[number].run.name, result),
            keep_going=True,
        )
    return [_summary(plan, result) for plan, result in zip(plans, results, strict=True)]


def combined_exit_code(summaries: Sequence[RunSummary]) -> int:
    """Return one exit code for all runs.

    An error takes precedence over a missed budget. If several runs failed, the highest exit code is returned.
    """
    return max((each.exit_code for each in summaries), key=lambda code: (code not in (0, BudgetMissed.exit_code), code))


def run_one(
    config: str, settings: str, out: str, force: list[str], working_folder: str, caches: list[str]
) -> dict[str, Any]:
    """Run one config in the worker's process and return the outcome as JSON values.

    `working_folder` is the folder in which the command was started.
    """
    from edgekit.report import summary
    from edgekit.workbook.run import run

    if Path(working_folder).is_dir():
        os.chdir(working_folder)
    started = time.monotonic()
    print("begins", flush=True)  # a short run may print no progress of its own
    try:
        plan = load_plan(Path(config), settings, checked_before=True)
        outcome = run(plan, Path(out), force=force, caches=caches)
    except EdgekitError as error:
        return _row(error.exit_code, str(error), started, {})
    folder = Path(out) / plan.run.name
    met = outcome.result["verdict"]["met"]
    return _row(0 if met else BudgetMissed.exit_code, summary.outcome_line(outcome.result), started, _bundles(folder))


def _row(exit_code: int, message: str, started: float, bundles: dict[str, str]) -> dict[str, Any]:
    return {"exit_code": exit_code, "message": message, "seconds": time.monotonic() - started, "bundles": bundles}


def _summary(plan: Plan, result: Any) -> RunSummary:
    if isinstance(result, EdgekitError):  # for example a worker that died three times
        return RunSummary(plan.run.name, result.exit_code, str(result), 0.0, {})
    return RunSummary(plan.run.name, **result)


def _bundles(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted((folder / BUNDLES).glob("*.edge.zip"))}


def _bundle_mismatch(folder: Path, result: dict[str, Any]) -> str:
    """Return how the bundles on disk differ from those that the worker reported, or nothing if they are the same."""
    for name, sha in result["bundles"].items():
        path = folder / BUNDLES / name
        try:
            actual = sha256_file(path)
        except OSError:
            return f"{path} does not exist"
        if actual != sha:
            return f"{path} has the digest {actual[:12]}, not {sha[:12]}"
    return ""
