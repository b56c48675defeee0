"""The references of a budget's relative limits: looked up among the rivals, and refused where none can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from edgekit.core.budget import BASELINE, Budget, Rival
from edgekit.core.errors import ConfigError, EdgekitError, Faults
from edgekit.data.paths import expand
from edgekit.models.files import detect
from edgekit.training.teachers import model_file
from edgekit.workbook.run_config import RunConfig
from edgekit.workbook.sections import section_of


def looked_up(path: Path, run: RunConfig) -> RunConfig:
    """The run with what its budget needs to know of rivals; ConfigError for one that benchmark.rivals does not name."""
    if run.budget.is_plain:
        return run
    named = _named(section_of(path, run, "benchmark").get("rivals"))
    faults = Faults()
    for place, limit in run.budget.relatives():
        if limit.of != BASELINE and limit.of not in named:
            known = f"it names {', '.join(sorted(named))}" if named else "it names none"
            faults.add(
                f"{place}.of: got {limit.of!r}, which is no file of benchmark.rivals ({known}); "
                f"name a file of it, or {BASELINE}"
            )
    for target in run.budget.targets:
        if target not in run.targets:
            faults.add(f"budget.targets.{target}: this run has the targets {', '.join(run.targets)}; leave it out")
    faults.raise_all()
    found = {name: rival for name, rival in ((name, _rival(file)) for name, file in named.items()) if rival}
    try:
        return run.model_copy(update={"budget": run.budget.with_rivals(found)})
    except ValueError as error:
        raise ConfigError(f"budget.{error}") from None


def agree(budget: Budget, stages: Mapping[str, Any]) -> None:
    """ConfigError for a reference that this run does not make, or does not time where latencies decide."""
    converted = stages["convert"]
    makes = "baseline" in converted.models and "fp32" in converted.precisions
    where = stages["benchmark"].where
    faults = Faults()
    for place, limit in budget.relatives():
        if limit.of == BASELINE and not makes:
            faults.add(
                f"{place}.of and convert disagree: {BASELINE} is its float file on each target, and convert makes "
                f"{', '.join(converted.models)} in {', '.join(converted.precisions)}; add baseline and fp32 there"
            )
        elif limit.of != BASELINE and where and place.endswith("latency_p50"):
            faults.add(
                f"{place}.of and benchmark.where disagree: {limit.of} is timed on this machine, and devices of class "
                f"{where} decide; write of: {BASELINE}, or latency_p50_ms"
            )
    faults.raise_all()


def _named(rivals: Any) -> dict[str, dict[str, Any]]:
    """By file name; what is no list of files is a fault that the stage itself reports."""
    listed = [each for each in rivals if isinstance(each, dict)] if isinstance(rivals, list) else []
    return {PurePath(each["path"]).name: each for each in listed if isinstance(each.get("path"), str)}


def _rival(file: dict[str, Any]) -> Rival | None:
    """None for a file that cannot be read: the stage's own check of its rivals says why."""
    try:
        found = model_file.open_file(expand(file["path"], "benchmark.rivals"))
        members = detect.members(found.path, found.kind)
        return Rival(file, found.sha256, sum(each.stat().st_size for each in members))
    except (EdgekitError, OSError):
        return None
