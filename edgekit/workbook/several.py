"""Several configs at once: each a run as `edgekit run CONFIG` makes it, in a process of its own, and a summary.

A run's measuring stages take the lane of their machine, so every bundle has the sha256 that it has alone.
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
from edgekit.workbook.workers import Work, open_pool

FUNCTION = f"{__name__}:run_one"
BUNDLES = "bundles"


@dataclass(frozen=True)
class Summary:
    """How one config ended: its exit code as `edgekit run` of it alone has it, and a sentence or an error in words.

    `bundles` are the sha256 of its bundles by file name, `seconds` what it took on its worker.
    """

    name: str
    exit_code: int
    words: str
    seconds: float
    bundles: dict[str, str]


def check_names(plans: Sequence[Plan]) -> None:
    """ConfigError where two configs have one name: both would write to one folder."""
    seen: dict[str, Path] = {}
    for plan in plans:
        name = plan.run.name
        if name in seen:
            raise ConfigError(
                f"{seen[name]} and {plan.path}: both are named {name!r}, so both would write to one folder; give one "
                "of them another name"
            )
        seen[name] = plan.path


def run_several(
    plans: Sequence[Plan],
    out: Path,
    *,
    force: Collection[str] = (),
    workers: int = 1,
    on: str | None = None,
    caches: Sequence[str] = (),
    on_line: Callable[[str, str], None],
    on_end: Callable[[Summary], None],
) -> list[Summary]:
    """Run all plans, whatever becomes of one; their summaries in the order of the plans.

    `workers` and `on` are those of `open_pool`. `on_line` gets a plan's name and a line of its progress, `on_end` each
    summary as its run ends. ConfigError for two plans of one name, and for a pool that cannot be opened.
    """
    check_names(plans)
    works = [
        Work(
            plan.run.name,
            FUNCTION,
            {
                "config": str(plan.path),
                "settings": plan.settings,
                "out": str(out.resolve()),
                "force": sorted(force),
                "start": str(Path.cwd()),
                "caches": list(caches),
            },
        )
        for plan in plans
    ]
    with sigterm_as_interrupt(), open_pool(workers, on, out, on_line) as pool:
        results = pool.run(
            works,
            lambda number, result: on_end(_summary(plans[number], result)),
            lambda number, result: _wrong(out / plans[number].run.name, result),
            go_on=True,
        )
    return [_summary(plan, result) for plan, result in zip(plans, results, strict=True)]


def worst(summaries: Sequence[Summary]) -> int:
    """The exit code of all together: an error's before a missed budget, and of several errors the highest."""
    return max((each.exit_code for each in summaries), key=lambda code: (code not in (0, BudgetMissed.exit_code), code))


def run_one(config: str, settings: str, out: str, force: list[str], start: str, caches: list[str]) -> dict[str, Any]:
    """In the worker's process: one run to its end, as a JSON value. `start` is the folder that the command began in."""
    from edgekit.report import summary
    from edgekit.workbook.run import run

    if Path(start).is_dir():
        os.chdir(start)
    began = time.monotonic()
    print("begins", flush=True)  # a run may end before its first line of progress is due
    try:
        plan = load_plan(Path(config), settings, known=True)
        ended = run(plan, Path(out), force=force, caches=caches)
    except EdgekitError as error:
        return _row(error.exit_code, str(error), began, {})
    folder = Path(out) / plan.run.name
    met = ended.result["verdict"]["met"]
    return _row(0 if met else BudgetMissed.exit_code, summary.outcome_line(ended.result), began, _bundles(folder))


def _row(exit_code: int, words: str, began: float, bundles: dict[str, str]) -> dict[str, Any]:
    return {"exit_code": exit_code, "words": words, "seconds": time.monotonic() - began, "bundles": bundles}


def _summary(plan: Plan, result: Any) -> Summary:
    if isinstance(result, EdgekitError):  # such as a worker that died three times
        return Summary(plan.run.name, result.exit_code, str(result), 0.0, {})
    return Summary(plan.run.name, **result)


def _bundles(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted((folder / BUNDLES).glob("*.edge.zip"))}


def _wrong(folder: Path, result: dict[str, Any]) -> str:
    """What of the answer is not what lies in the run's folder; empty where all is."""
    for name, sha in result["bundles"].items():
        path = folder / BUNDLES / name
        try:
            found = sha256_file(path)
        except OSError:
            return f"{path} is not there"
        if found != sha:
            return f"{path} has the digest {found[:12]}, not {sha[:12]}"
    return ""
