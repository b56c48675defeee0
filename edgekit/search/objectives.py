"""What a study looks for: objectives, the front, and the hypervolume that the front dominates.

All of it is done in losses, of which less is better: accuracy is negated, milliseconds and bytes are logarithms.
Half as many bytes then count the same at any size.
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

Name = Literal["accuracy", "p50_ms", "bytes"]
NAMES: tuple[Name, ...] = get_args(Name)
BEYOND = 0.1
"""The reference point lies this share of the range behind the worst value of a feasible trial."""


@dataclass(frozen=True)
class Objective:
    """`accuracy`, a fraction; `p50_ms` or `bytes` of the file for a target."""

    name: Name
    target: str | None = None

    @property
    def title(self) -> str:
        """`p50_ms of tflite`."""
        return f"{self.name} of {self.target}" if self.target else self.name

    def row(self) -> ObjectiveRow:
        """As study.json has it."""
        direction: Literal["maximize", "minimize"] = "maximize" if self.name == "accuracy" else "minimize"
        return {"name": self.name, "target": self.target, "direction": direction}

    def loss(self, value: float) -> float:
        """Less is better: −accuracy, or the natural logarithm."""
        return -value if self.name == "accuracy" else math.log(max(value, 1e-12))

    def value(self, loss: float) -> float:
        """The opposite of `loss`."""
        return -loss if self.name == "accuracy" else math.exp(loss)


def read(given: Any, plan_values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """The section `objectives`; without it accuracy, and latency and bytes of the config's first target."""
    targets = plan_values.get("targets") or list(TARGETS)
    if given is None:
        return (Objective("accuracy"), Objective("p50_ms", targets[0]), Objective("bytes", targets[0]))
    if not isinstance(given, list) or not given:
        raise ConfigError(f"objectives: got {shortened_repr(given)}; give a list such as [accuracy, {{bytes: tflite}}]")
    found = [_objective(each, targets) for each in given]
    for place, each in enumerate(found):
        if each in found[:place]:
            raise ConfigError(f"objectives: {each.title} stands there twice; name each once")
    return tuple(found)


def _objective(given: Any, targets: Sequence[str]) -> Objective:
    name, target = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else (given, None)
    if not isinstance(name, str) or name not in NAMES:
        raise ConfigError(f"objectives: got {shortened_repr(given)}, {suggest(str(name), NAMES)}")
    if name == "accuracy":
        if target is not None:
            raise ConfigError(
                f"objectives: accuracy has no target, and got {shortened_repr(target)}; write accuracy alone"
            )
        return Objective("accuracy")
    target = targets[0] if target is None else target
    if target not in targets:
        raise ConfigError(f"objectives.{name}: got {shortened_repr(target)}, {suggest(str(target), list(targets))}")
    return Objective("p50_ms" if name == "p50_ms" else "bytes", target)


def is_feasible(row: TrialRow) -> bool:
    """Whether a trial went through every rung and is inside the budget."""
    return row["state"] == "complete" and all(value <= 0 for value in row["constraints"].values())


def losses(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> np.ndarray:
    """Losses of all trials (trials × objectives). The worst of the complete ones stands for a value that is None."""
    found = np.array(
        [
            [each.loss(value) if value is not None else math.nan for each, value in zip(objectives, row["values"])]
            for row in rows
        ]
    ).reshape(len(rows), len(objectives))
    complete = np.array([row["state"] == "complete" for row in rows], dtype=bool)
    known = found[complete] if complete.any() else found
    for column in range(len(objectives)):
        there = known[:, column][~np.isnan(known[:, column])]
        worst = there.max() if there.size else 0.0
        found[:, column] = np.where(np.isnan(found[:, column]), worst, found[:, column])
    return found


def front(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[int]:
    """Numbers of the feasible trials that no other dominates; of several alike the first."""
    feasible = [row for row in rows if row["feasible"] and None not in row["values"]]
    return [feasible[place]["number"] for place in nondominated(losses(feasible, objectives))]


def nondominated(points: np.ndarray) -> list[int]:
    """Places of the points (points × losses) that no other dominates; of equal points the first."""
    kept = []
    for place, point in enumerate(points):
        better = (points <= point).all(axis=1) & (points < point).any(axis=1)
        equal = (points[:place] == point).all(axis=1)
        if not better.any() and not equal.any():
            kept.append(place)
    return kept


def reference(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[float] | None:
    """Losses of the point that hypervolumes are taken from; None before any trial is feasible.

    It is a little worse than the worst of the feasible trials, so each of them counts. It moves while a study
    grows, so `grown` takes all hypervolumes from that of now.
    """
    known = [row for row in rows if row["feasible"]]
    if not known:
        return None
    found = losses(known, objectives)
    worst, best = found.max(axis=0), found.min(axis=0)
    return [float(w + BEYOND * (w - b if w > b else 1.0)) for w, b in zip(worst, best)]


def grown(rows: Sequence[TrialRow], objectives: Sequence[Objective]) -> list[float]:
    """The hypervolume of the front behind each batch, all taken from the reference point of now."""
    point = reference(rows, objectives)
    found, known = list[float](), np.empty((0, len(objectives)))
    for batch in range(max((row["batch"] for row in rows), default=-1) + 1):
        new = losses([row for row in rows if row["batch"] == batch and row["feasible"]], objectives)
        both = np.concatenate([known, new])
        known = both[nondominated(both)]
        found.append(hypervolume(known, point) if point else 0.0)
    return found


def hypervolume(points: np.ndarray, reference: Sequence[float]) -> float:
    """The volume that points (points × losses) dominate up to a reference point; exact in any number of dimensions.

    By exclusive hypervolumes: While, Bradstreet, Barone, "A Fast Way of Calculating Exact Hypervolumes", 2012.
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
    if len(bound) == 3:  # slabs between one point's last loss and the next one's: faster than what follows
        points = points[np.argsort(points[:, 2])]
        for place, thick in enumerate(np.diff([*points[:, 2], bound[2]])):
            total += _volume(points[: place + 1, :2], bound[:2]) * float(thick) if thick else 0.0
        return total
    for place, point in enumerate(points):
        limited = np.maximum(points[place + 1 :], point)
        shared = _volume(limited[nondominated(limited)], bound) if len(limited) else 0.0
        total += float((bound - point).prod()) - shared
    return total
