"""Rows of a study: what `edgekit search` writes into study.json, and its page and notebook read."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

TrialState = Literal["complete", "infeasible", "stopped", "failed"]
"""`complete`: went through every rung. `infeasible`: over the budget by a cheap rung. `stopped`: dominated after a few
epochs. `failed`: an error, whose words are the reason."""
Fidelity = Literal["shape", "untrained", "few_epochs", "all"]


class ObjectiveRow(TypedDict):
    """An objective. `name` is accuracy (a fraction), p50_ms or bytes; `target` is None for accuracy."""

    name: str
    target: str | None
    direction: Literal["maximize", "minimize"]


class DimensionRow(TypedDict):
    """An option of the space: choices, or a range; `when` names other options and the values it exists under."""

    key: str
    choices: NotRequired[list[Any]]
    low: NotRequired[float]
    high: NotRequired[float]
    step: NotRequired[float | None]
    log: NotRequired[bool]
    when: NotRequired[dict[str, list[Any]]]


class SamplerRow(TypedDict):
    """Who proposed the trials, and why this one."""

    name: str
    reason: str


class TrialRow(TypedDict):
    """One trial. `values` and `intervals` follow the study's objectives; None where the trial did not get there.

    `constraints` are at most 0 where the budget is met. `variants` names the file that stands for each target.
    """

    number: int
    batch: int
    parameters: dict[str, Any]
    settings: list[str]
    state: TrialState
    rung: Fidelity
    reason: str
    values: list[float | None]
    intervals: list[list[float] | None]
    constraints: dict[str, float]
    feasible: bool
    variants: dict[str, str]
    took_s: dict[str, float]
    same_as: int | None


class AnchorRow(TypedDict):
    """A file that every round of measuring times beside the trials', and its p50 in the first round."""

    name: str
    target: str
    p50_ms: float


class BatchRow(TypedDict):
    """A batch at its end: the study's digest so far, the front's hypervolume, seconds since the study began."""

    number: int
    digest: str
    hypervolume: float
    seconds: float
    disturbed: bool


class StudyRow(TypedDict):
    """study.json. `front` lists trial numbers; `reference` is the point that hypervolumes are taken from.

    `baseline_accuracy`: the fraction that the budget's drop counts from; where it is missing, figures do not draw it.
    """

    format: int
    edgekit: str
    name: str
    config_path: str
    config: dict[str, Any]
    budget: dict[str, Any]
    space: list[DimensionRow]
    objectives: list[ObjectiveRow]
    sampler: SamplerRow
    seed: int
    batch: int
    key: str
    reference: list[float]
    anchors: list[AnchorRow]
    baseline_accuracy: NotRequired[float]
    trials: list[TrialRow]
    batches: list[BatchRow]
    front: list[int]
    ended: str
