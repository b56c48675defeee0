"""The objectives of a study, its Pareto front, and the hypervolume that the front dominates.

All computations use losses, for which lower is better: accuracy is negated, and milliseconds and bytes are replaced by
their logarithms, so that halving the size counts the same for any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from edgekit.core.config import TARGETS, shortened_repr, suggest
from edgekit.core.errors import ConfigError
from edgekit.core.schema.study import ObjectiveRow, TrialRow

ObjectiveName = Literal["accuracy", "p50_ms", "bytes"]
OBJECTIVE_NAMES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
REFERENCE_MARGIN = 0.1
"""In each loss, the reference point is worse than the worst feasible trial by this fraction of the range."""


@dataclass(frozen=True)
class Objective:
    """An objective: either `accuracy` (a fraction), or the `p50_ms` or the `bytes` of the file for a target."""

    name: ObjectiveName
    target: str | None = None

    @property
    def title(self) -> str:
        """For example `p50_ms of tflite`."""
        return f"{self.name} of {self.target}" if self.target else self.name

    def row(self) -> ObjectiveRow:
        """The objective as study.json records it."""
        direction: Literal["maximize", "minimize"] = "maximize" if self.name == "accuracy" else "minimize"
        return {"name": self.name, "target": self.target, "direction": direction}

    def loss(self, value: float) -> float:
        """Convert a value to a loss: the negated accuracy, or the natural logarithm of a latency or size."""
        return -value if self.name == "accuracy" else math.log(max(value, 1e-12))

    def value(self, loss: float) -> float:
        """Convert a loss back to a value."""
        return -loss if self.name == "accuracy" else math.exp(loss)


def read_objectives(entries: Any, plan_values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Read the section `objectives`.

    If there is none, the objectives are accuracy, and latency and size for the first target of the config.
    """
    targets = plan_values.get("targets") or list(TARGETS)
    if entries is None:
        return (Objective("accuracy"), Objective("p50_ms", targets[0]), Objective("bytes", targets[0]))
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"objectives: got {shortened_repr(entries)}; give a list such as [accuracy, {{bytes: tflite}}]"
        )
    objectives = [_read_objective(each, targets) for each in entries]
    for position, each in enumerate(objectives):
        if each in objectives[:position]:
            raise ConfigError(f"objectives: {each.title} is listed twice; name each objective once")
    return tuple(objectives)


def _read_objective(entry: Any, targets: Sequence[str]) -> Objective:
    name, target = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (entry, None)
    if not isinstance(name, str) or name not in OBJECTIVE_NAMES:
        raise ConfigError(f"objectives: got {shortened_repr(entry)}, {suggest(str(name), OBJECTIVE_NAMES)}")
    if name == "accuracy":
        if target is not None:
            raise ConfigError(
                f"objectives: accuracy has no target, but got {shortened_repr(target)}; write accuracy alone"
            )
        return Objective("accuracy")
    target = targets[0] if target is None else target
    if target not in targets:
        raise ConfigError(f"objectives.{name}: got {shortened_repr(target)}, {suggest(str(target), list(targets))}")
    return Objective("p50_ms" if name == "p50_ms" else "bytes", target)


def is_feasible(row: TrialRow) -> bool:
    """Whether a trial passed every fidelity and meets the budget."""
    return row["state"] == "complete" and all(value <= 0 for value in row["constraints"].values())


def losses(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> np.ndarray:
    """The losses of all trials, shape (trials, objectives).

    A missing value is replaced by the worst value of the complete trials.
    """
    losses_by_trial = np.array(
        [
            [each.loss(value) if value is not None else math.nan for each, value in zip(objectives, row["values"])]
            for row in rows
        ]
    ).reshape(len(rows), len(objectives))
    complete = np.array([row["state"] == "complete" for row in rows], dtype=bool)
    complete_losses = losses_by_trial[complete] if complete.any() else losses_by_trial
    for column in range(len(objectives)):
        present = complete_losses[:, column][~np.isnan(complete_losses[:, column])]
        worst = present.max() if present.size else 0.0
        losses_by_trial[:, column] = np.where(np.isnan(losses_by_trial[:, column]), worst, losses_by_trial[:, column])
    return losses_by_trial


def pareto_front(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[int]:
    """The numbers of the feasible trials that no other trial dominates. Of equal trials, only the first is included."""
    feasible = [row for row in rows if row["feasible"] and None not in row["values"]]
    return [feasible[index]["number"] for index in nondominated(losses(feasible, objectives))]


def nondominated(points: np.ndarray) -> list[int]:
    """The indices of the points that no other point dominates. Of equal points, only the first is included.

    `points` has the shape (points, losses).
    """
    indices = []
    for index, point in enumerate(points):
        better = (points <= point).all(axis=1) & (points < point).any(axis=1)
        equal = (points[:index] == point).all(axis=1)
        if not better.any() and not equal.any():
            indices.append(index)
    return indices


def reference_point(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[float] | None:
    """The losses of the reference point for hypervolumes; None if no trial is feasible.

    The point is a little worse than the worst feasible trial, so that every feasible trial adds volume. It changes as
    the study grows, so `hypervolume_by_batch` uses the current point for all batches.
    """
    feasible = [row for row in rows if row["feasible"]]
    if not feasible:
        return None
    feasible_losses = losses(feasible, objectives)
    worst, best = feasible_losses.max(axis=0), feasible_losses.min(axis=0)
    return [float(w + REFERENCE_MARGIN * (w - b if w > b else 1.0)) for w, b in zip(worst, best)]


def hypervolume_by_batch(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[float]:
    """The hypervolume of the front after each batch, measured from the current reference point."""
    point = reference_point(rows, objectives)
    volumes, front_points = list[float](), np.empty((0, len(objectives)))
    for batch in range(max((row["batch"] for row in rows), default=-1) + 1):
        batch_losses = losses([row for row in rows if row["batch"] == batch and row["feasible"]], objectives)
        points = np.concatenate([front_points, batch_losses])
        front_points = points[nondominated(points)]
        volumes.append(hypervolume(front_points, point) if point else 0.0)
    return volumes


def hypervolume(points: np.ndarray, reference: Sequence[float]) -> float:
    """The volume between a reference point and the points that dominate it, exact in any number of dimensions.

    `points` has the shape (points, losses). The volume is the sum of exclusive hypervolumes, as in While, Bradstreet
    and Barone, "A Fast Way of Calculating Exact Hypervolumes", 2012.
    """
    bound = np.asarray(reference, dtype=float)
    inside = points[(points < bound).all(axis=1)] if len(points) else points
    return _volume(inside[nondominated(inside)], bound) if len(inside) else 0.0


def _volume(points: np.ndarray, bound: np.ndarray) -> float:
    if len(bound) == 1:
        return float(bound[0] - points.min())
    points = points[np.argsort(points[:, 0])[::-1]]
    if len(bound) == 2:
        points = points[::-1]
        heights = np.concatenate([bound[1:], np.minimum.accumulate(points[:, 1])[:-1]])
        return float(((bound[0] - points[:, 0]) * np.maximum(heights - points[:, 1], 0)).sum())
    total = 0.0
    if len(bound) == 3:  # slabs along the last loss are faster than the general case below
        points = points[np.argsort(points[:, 2])]
        for index, thickness in enumerate(np.diff([*points[:, 2], bound[2]])):
            total += _volume(points[: index + 1, :2], bound[:2]) * float(thickness) if thickness else 0.0
        return total
    for index, point in enumerate(points):
        limited = np.maximum(points[index + 1 :], point)
        shared = _volume(limited[nondominated(limited)], bound) if len(limited) else 0.0
        total += float((bound - point).prod()) - shared
    return total
