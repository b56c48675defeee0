"""Rows of pruning: its steps, and how fast what they left is."""

from __future__ import annotations

from typing import Any, NotRequired

from edgekit.core.schema.conditions import Disturbances, Machine
from edgekit.core.schema.record import Record
from edgekit.core.schema.training import FailedFile, FileTimes
from edgekit.core.schema.variants import DropFields


class PruneStep(DropFields):
    """A step of one way of pruning: what was left, its cost, and its drop on validation with the bound."""

    step: int
    aimed: float
    kept: bool
    reason: str
    inside_budget: bool
    validation_accuracy: float
    parameters: int
    nonzero_parameters: int
    macs: int
    weight_bytes: int
    activation_bytes: int
    layers: int
    sparsity: float
    from_scratch: NotRequired[int]
    """The step whose shape this is, trained from new weights."""


class RetrainedStep(Record):
    """A step's shape from new weights beside what was fine-tuned: `below_tuned` is its drop below that."""

    of_step: int
    epochs: int
    validation_accuracy: float
    tuned_accuracy: float
    below_tuned: DropFields
    kept: bool
    reason: str


class TimedCut(Record):
    """A cut that was timed: its p50 over the student's, and over the network's before it with the interval's ends.

    `validation_accuracy` is that of the cut that was taken, before the step's fine-tuning.
    """

    step: int
    group: str
    width: int
    target: str
    precision: str
    of_student: float
    of_before: float
    low: float
    high: float
    taken: bool
    validation_accuracy: float | None


class MeasuredSpeedup(Record):
    """How many times faster, with the ends of the ratio's interval."""

    measured: float
    measured_low: float
    measured_high: float


class StepLatency(MeasuredSpeedup, FileTimes):
    """A step on one target: what its multiply-adds predict against step 0, what was measured, and the share of it."""

    step: int
    macs: int
    predicted: float
    gain_share: float


class SparseLatency(MeasuredSpeedup):
    """The sparse network beside the student it was made from, on one target."""

    target: str
    precision: str
    dense_bytes: int
    dense_zipped_bytes: int
    dense_p50_ms: float
    sparse_bytes: int
    sparse_zipped_bytes: int
    sparse_p50_ms: float


class PruneConditions(Machine, Disturbances):
    """Where and how the steps were timed; `confidence` is that of the intervals, a fraction."""

    protocol: str
    confidence: float


class PruneLatencies(Record):
    """All that was timed."""

    steps: list[StepLatency]
    sparse: list[SparseLatency]
    left_out: NotRequired[list[FailedFile]]
    conditions: NotRequired[PruneConditions]
    sparse_step: NotRequired[int]


class FailedLatencies(Record):
    """Why nothing was timed."""

    failed: str
    sparse_step: NotRequired[int]


class SparsityPattern(Record):
    """Where a layer's zeros are: the share of its weights, and a corner of the map, True where one is not zero."""

    name: str
    zeros: float
    weights: int
    shape: tuple[int, ...]
    nonzero: Any
