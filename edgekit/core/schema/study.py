"""Records of a study. `edgekit search` writes them to study.json, and the study's page and notebook read them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

TrialState = Literal["complete", "infeasible", "stopped", "failed"]
"""`complete`: evaluated at every fidelity.

`infeasible`: over the budget at a cheap fidelity. `stopped`: another trial was significantly better after a few epochs.
`failed`: an error, whose message is the reason.
"""
Fidelity = Literal["shape", "untrained", "few_epochs", "all"]


class ObjectiveRow(TypedDict):
    """An objective. `name` is accuracy (a fraction), p50_ms or bytes; `target` is None for accuracy."""

    name: str
    target: str | None
    direction: Literal["maximize", "minimize"]


class DimensionRow(TypedDict):
    """A dimension of the search space: choices or a range.

    The dimension exists only in trials whose options have one of the values that `when` lists for them.
    """

    key: str
    choices: NotRequired[list[Any]]
    low: NotRequired[float]
    high: NotRequired[float]
    step: NotRequired[float | None]
    log: NotRequired[bool]
    when: NotRequired[dict[str, list[Any]]]


class SamplerRow(TypedDict):
    """The sampler that proposed the trials, and the reason for choosing it."""

    name: str
    reason: str


class TrialRow(TypedDict):
    """One trial. `values` and `intervals` have an entry for each of the study's objectives, in the same order.

    An entry is None if the trial ended before this objective was measured. Each of the `constraints` is at most 0 if
    its limit of the budget is met. `variants` names the file that represents each target. `same_as` is the number of
    an earlier trial with the same settings, whose outcome was reused.
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
    """A baseline file that every round of timing includes, and its p50 in the first round."""

    name: str
    target: str
    p50_ms: float


class BatchRow(TypedDict):
    """A finished batch: the study's digest so far, the front's hypervolume, and the seconds since the study began."""

    number: int
    digest: str
    hypervolume: float
    seconds: float
    disturbed: bool


class StudyRow(TypedDict):
    """study.json. `front` lists trial numbers; `reference` is the reference point of the hypervolumes.

    `baseline_accuracy` is a fraction. If it is missing, figures do not draw the budget's limit on the accuracy drop,
    because that limit is relative to it.
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
