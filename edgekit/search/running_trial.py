"""A trial on its way through the rungs, the files that stand for it, and what it is worth."""

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
from edgekit.search.files import Content
from edgekit.search.measurement import Latency, Measured
from edgekit.search.objectives import Objective
from edgekit.search.rungs import Size, Standing
from edgekit.search.trial import Outcome

KEPT = "kept.json"
"""In a trial's folder: what later batches want of it."""


@dataclass(frozen=True)
class Chosen:
    """A file with everything that is told of it; `interval` is that of the accuracy."""

    name: str
    accuracy: float
    interval: list[float]
    bound_pp: float
    bytes: int
    content: Content
    latency: Latency


@dataclass
class RunningTrial:
    """A trial on its way."""

    number: int
    settings: list[str]
    place: Path
    rung: Fidelity = "shape"
    state: TrialState | None = None
    reason: str = ""
    size: Size | None = None
    epochs: int = 0
    standing: Standing | None = None
    chosen: dict[str, Chosen] = field(default_factory=dict)
    constraints: dict[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    def end(self, state: TrialState, reason: str) -> None:
        """It goes no further."""
        self.state, self.reason = state, reason

    def outcome(self, objectives: Sequence[Objective]) -> Outcome:
        """Its row, but for what the study adds."""
        assert self.state is not None
        done = self.state == "complete"
        values = [value(each, self.chosen) if done else (None, None) for each in objectives]
        return {
            "state": self.state,
            "rung": self.rung,
            "reason": self.reason,
            "values": [value for value, _ in values],
            "intervals": [interval for _, interval in values],
            "constraints": self.constraints,
            "variants": {target: chosen.name for target, chosen in self.chosen.items()},
            "took_s": self.took_s,
        }

    def keep(self) -> None:
        """Write down what later batches want of a trial that may be on the front."""
        contents = [chosen.content.to_json() for chosen in self.chosen.values()]
        standing = asdict(self.standing) if self.standing else None
        make_folder(self.place)
        write_json(self.place / KEPT, {"standing": standing, "contents": contents})


@dataclass(frozen=True)
class Kept:
    """Of a trial of the front: how it stood after a few epochs, and its files that are still there."""

    standing: Standing | None
    contents: list[Content]

    @classmethod
    def read(cls, place: Path, number: int) -> Kept | None:
        """What `RunningTrial.keep` left in a trial's folder; None where there is nothing."""
        try:
            kept = json.loads((place / KEPT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        standing = Standing(**{**kept["standing"], "number": number}) if kept["standing"] else None
        contents = [Content.from_json(each) for each in kept["contents"]]
        return cls(standing, [content for content in contents if content.is_whole()])


def choose(rows: Sequence[dict[str, Any]], measured: Measured) -> Chosen:
    """The fastest of the rows of `files.evaluate`, all measured; of equals the smallest, then the first name."""
    every = []
    for row in rows:
        content = Content.from_json(row["content"])
        latency = measured.of(content)
        assert latency is not None
        figures = {name: row[name] for name in ("name", "accuracy", "interval", "bound_pp", "bytes")}
        every.append(Chosen(**figures, content=content, latency=latency))
    return min(every, key=lambda each: (each.latency.ratio, each.bytes, each.name))


def candidates(
    rows: Sequence[dict[str, Any]], budget: Budget, baseline: Mapping[str, int] = {}
) -> list[dict[str, Any]]:
    """The files that may stand for a trial, target by target: those within the budget's drop, of these the small ones.

    Where none is within the drop, the most accurate. `baseline`: bytes of its float file, by target.
    """
    found = []
    for target in dict.fromkeys(row["target"] for row in rows):
        limit = budget.limits(target).max_bytes(baseline.get(target))
        of = [row for row in rows if row["target"] == target]
        within = [row for row in of if row["bound_pp"] <= budget.accuracy_drop_pp]
        small = [row for row in within if limit is None or row["bytes"] <= limit]
        most = min(of, key=lambda row: (-row["accuracy"], row["bytes"], row["name"]))
        found += small or within or [most]
    return found


def constraints(chosen: Iterable[Chosen], budget: Budget, baseline: Mapping[str, int] = {}) -> dict[str, float]:
    """By how much the worst target is over each limit of the budget; at most 0 where it is met.

    `latency_p50` is a ratio to the reference of a relative limit.
    """
    every = list(chosen)
    over = {"accuracy_drop_pp": [each.bound_pp - budget.accuracy_drop_pp for each in every]}
    for each in every:
        limits = budget.limits(each.content.target)
        if limits.latency_p50_ms is not None:
            over.setdefault("latency_p50_ms", []).append(each.latency.interval_ms[0] - limits.latency_p50_ms)
        if (relative := limits.latency_p50) is not None:
            over.setdefault("latency_p50", []).append(each.latency.ratio_low(relative) - relative.ratio)
        if (most := limits.max_bytes(baseline.get(each.content.target))) is not None:
            over.setdefault("size_bytes", []).append(float(each.bytes - most))
    return {name: max(by) for name, by in over.items()}


def value(objective: Objective, chosen: Mapping[str, Chosen]) -> tuple[float, list[float]]:
    """What a trial is worth by an objective, and its interval; accuracy is that of the first target's file."""
    one = chosen[objective.target] if objective.target else next(iter(chosen.values()))
    if objective.name == "accuracy":
        return one.accuracy, one.interval
    if objective.name == "bytes":
        return float(one.bytes), [float(one.bytes)] * 2
    return one.latency.p50_ms, one.latency.interval_ms
