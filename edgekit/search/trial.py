"""A trial as it is asked, what comes back of it, and what passes between a study and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from edgekit.core.schema.study import AnchorRow, Rung, TrialRow, TrialState


@dataclass(frozen=True)
class Trial:
    """What is asked: parameters by config key, and the same as `key=value` of `--set`."""

    number: int
    batch: int
    parameters: dict[str, Any]
    settings: tuple[str, ...]


class Outcome(TypedDict):
    """What an evaluation says of a trial; a TrialRow less what the study adds. `values` follow the objectives."""

    state: TrialState
    rung: Rung
    reason: str
    values: list[float | None]
    intervals: list[list[float] | None]
    constraints: dict[str, float]
    variants: dict[str, str]
    took_s: dict[str, float]


@dataclass
class Context:
    """What an evaluation knows besides its trials, and what it may tell beside its outcomes.

    Parameters
    ----------
    folder
        The study's.
    batch
        Its number.
    told
        Trials of all batches before, by number.
    front
        Those of them that no other dominates.
    anchors
        Files that every round of measuring times beside the trials'; an evaluation fills them in the first batch.
    baseline_accuracy
        The fraction that the budget's drop counts from, where the evaluation knows it.
    disturbed
        Set by an evaluation whose last round of measuring was disturbed.
    finished
        `finished(number, outcome)` makes an outcome durable before the batch is whole. After a kill, that trial is not
        evaluated again.
    """

    folder: Path
    batch: int
    told: Sequence[TrialRow]
    front: Sequence[TrialRow]
    finished: Callable[[int, Outcome], None]
    anchors: list[AnchorRow] = field(default_factory=list)
    baseline_accuracy: float | None = None
    disturbed: bool = False


Evaluate = Callable[[Sequence[Trial], Context], Sequence[Outcome]]
"""Outcomes of the trials of a batch, in their order; trials that are finished or asked twice are left out."""
