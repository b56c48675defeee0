"""A trial while it is evaluated at the fidelities, the files that represent it, and its values for the objectives."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core.config import Budget
from edgekit.core.hashing import write_json
from edgekit.core.schema.study import Fidelity, TrialState
from edgekit.runner.files import make_folder
from edgekit.search.fidelities import EarlyResult, NetworkSize
from edgekit.search.measurement import MeasuredLatency, Measurements
from edgekit.search.model_files import ModelFiles
from edgekit.search.objectives import Objective
from edgekit.search.trial import TrialOutcome

RETAINED_FILE = "kept.json"
"""The file in a trial's folder that holds what later batches need."""


@dataclass(frozen=True)
class SelectedFile:
    """The file that represents a trial on a target. `interval` is that of the accuracy."""

    name: str
    accuracy: float
    interval: list[float]
    bound_pp: float
    bytes: int
    files: ModelFiles
    latency: MeasuredLatency


@dataclass
class RunningTrial:
    """A trial that is being evaluated."""

    number: int
    settings: list[str]
    folder: Path
    fidelity: Fidelity = "shape"
    state: TrialState | None = None
    reason: str = ""
    size: NetworkSize | None = None
    epochs: int = 0
    early_result: EarlyResult | None = None
    selected: dict[str, SelectedFile] = field(default_factory=dict)
    constraints: dict[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    def finish(self, state: TrialState, reason: str) -> None:
        """End the trial with a state and a reason."""
        self.state, self.reason = state, reason

    def outcome(self, objectives: Sequence[Objective]) -> TrialOutcome:
        """The outcome of the trial, without the fields that the study adds."""
        assert self.state is not None
        is_complete = self.state == "complete"
        values = [objective_value(each, self.selected) if is_complete else (None, None) for each in objectives]
        return {
            "state": self.state,
            "rung": self.fidelity,
            "reason": self.reason,
            "values": [value for value, _ in values],
            "intervals": [interval for _, interval in values],
            "constraints": self.constraints,
            "variants": {target: file.name for target, file in self.selected.items()},
            "took_s": self.took_s,
        }

    def save_retained(self) -> None:
        """Save the early result and the files, which later batches need if the trial is on the front."""
        files = [file.files.to_json() for file in self.selected.values()]
        early_result = asdict(self.early_result) if self.early_result else None
        make_folder(self.folder)
        write_json(self.folder / RETAINED_FILE, {"standing": early_result, "contents": files})


@dataclass(frozen=True)
class RetainedTrial:
    """The part of a trial on the front that is kept for later batches: its early result and its unchanged files."""

    early_result: EarlyResult | None
    files: list[ModelFiles]

    @classmethod
    def read(cls, folder: Path, number: int) -> RetainedTrial | None:
        """Read what `RunningTrial.save_retained` wrote; None if there is nothing."""
        try:
            fields = json.loads((folder / RETAINED_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        early_result = EarlyResult(**{**fields["standing"], "number": number}) if fields["standing"] else None
        files = [ModelFiles.from_json(each) for each in fields["contents"]]
        return cls(early_result, [content for content in files if content.is_intact()])


def select_file(rows: Sequence[dict[str, Any]], measurements: Measurements) -> SelectedFile:
    """Select the fastest file from rows of `evaluate_variants`, or the smallest of equally fast ones.

    The latency of all of them must have been measured.
    """
    candidates = []
    for row in rows:
        content = ModelFiles.from_json(row["content"])
        latency = measurements.latency_of(content)
        assert latency is not None
        fields = {name: row[name] for name in ("name", "accuracy", "interval", "bound_pp", "bytes")}
        candidates.append(SelectedFile(**fields, files=content, latency=latency))
    return min(candidates, key=lambda each: (each.latency.ratio, each.bytes, each.name))


def candidate_rows(
    rows: Sequence[dict[str, Any]], budget: Budget, baseline: Mapping[str, int] = {}
) -> list[dict[str, Any]]:
    """The files that may represent a trial, target by target.

    For each target, these are the files that meet the limits on accuracy drop and size. If there are none, they are the
    files that meet the limit on the accuracy drop, and if there are none of these either, the most accurate file.
    `baseline` has the size of the baseline's float file, by target.
    """
    candidates = []
    for target in dict.fromkeys(row["target"] for row in rows):
        limit = budget.limits(target).max_bytes(baseline.get(target))
        target_rows = [row for row in rows if row["target"] == target]
        accurate_rows = [row for row in target_rows if row["bound_pp"] <= budget.accuracy_drop_pp]
        small_rows = [row for row in accurate_rows if limit is None or row["bytes"] <= limit]
        most_accurate = min(target_rows, key=lambda row: (-row["accuracy"], row["bytes"], row["name"]))
        candidates += small_rows or accurate_rows or [most_accurate]
    return candidates


def constraint_values(
    selected: Iterable[SelectedFile], budget: Budget, baseline: Mapping[str, int] = {}
) -> dict[str, float]:
    """For each limit of the budget, the largest excess on any target; 0 or less if all targets meet the limit.

    `latency_p50` limits the ratio to a reference model or to the baseline, so its excess is a difference of ratios.
    """
    files = list(selected)
    excesses = {"accuracy_drop_pp": [each.bound_pp - budget.accuracy_drop_pp for each in files]}
    for each in files:
        limits = budget.limits(each.files.target)
        if limits.latency_p50_ms is not None:
            excesses.setdefault("latency_p50_ms", []).append(each.latency.interval_ms[0] - limits.latency_p50_ms)
        if (relative := limits.latency_p50) is not None:
            excesses.setdefault("latency_p50", []).append(each.latency.ratio_low(relative) - relative.ratio)
        if (limit_bytes := limits.max_bytes(baseline.get(each.files.target))) is not None:
            excesses.setdefault("size_bytes", []).append(float(each.bytes - limit_bytes))
    return {name: max(amounts) for name, amounts in excesses.items()}


def objective_value(objective: Objective, selected: Mapping[str, SelectedFile]) -> tuple[float, list[float]]:
    """The value of a trial for an objective, with its interval. The accuracy is that of the file for the first target.

    `selected` has the file that represents the trial on each target.
    """
    file = selected[objective.target] if objective.target else next(iter(selected.values()))
    if objective.name == "accuracy":
        return file.accuracy, file.interval
    if objective.name == "bytes":
        return float(file.bytes), [float(file.bytes)] * 2
    return file.latency.p50_ms, file.latency.interval_ms
