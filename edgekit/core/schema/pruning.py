"""Records of pruning: its steps, and their latencies."""

from __future__ import annotations

from typing import Any, NotRequired

from edgekit.core.schema.conditions import Disturbances, Machine
from edgekit.core.schema.record import Record
from edgekit.core.schema.training import FailedFile, FileTimes
from edgekit.core.schema.variants import DropFields


class PruneStep(DropFields):
    """A pruning step: the size of the remaining network, and its accuracy drop on validation with the upper bound."""

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
    """The number of the step whose shape this network has, if it was trained from new weights."""


class RetrainedStep(Record):
    """A network with the shape of a pruning step, trained from new weights and compared with the fine-tuned one.

    `below_tuned` is its accuracy drop below the fine-tuned network.
    """

    of_step: int
    epochs: int
    validation_accuracy: float
    tuned_accuracy: float
    below_tuned: DropFields
    kept: bool
    reason: str


class TimedCut(Record):
    """A cut that was timed. A cut narrows one group of layers to `width` channels.

    `of_student` is its p50 divided by the student's, and `of_before` its p50 divided by that of the network before the
    cut. `low` and `high` are the bounds of `of_before`. `validation_accuracy` is the accuracy before the step's
    fine-tuning; it is None if the cut was not selected.
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
    """A measured speed-up with the bounds of its interval."""

    measured: float
    measured_low: float
    measured_high: float


class StepLatency(MeasuredSpeedup, FileTimes):
    """The latency of a step on one target.

    `predicted` is the speed-up over step 0 that its multiply-adds predict. `gain_share` is the measured speed-up
    divided by the predicted one.
    """

    step: int
    macs: int
    predicted: float
    gain_share: float


class SparseLatency(MeasuredSpeedup):
    """The latency of the sparse network and of the student that it was made from, on one target."""

    target: str
    precision: str
    dense_bytes: int
    dense_zipped_bytes: int
    dense_p50_ms: float
    sparse_bytes: int
    sparse_zipped_bytes: int
    sparse_p50_ms: float


class PruneConditions(Machine, Disturbances):
    """The machine and the protocol with which the steps were timed. `confidence` of the intervals is a fraction."""

    protocol: str
    confidence: float


class PruneLatencies(Record):
    """All latencies of pruning."""

    steps: list[StepLatency]
    sparse: list[SparseLatency]
    left_out: NotRequired[list[FailedFile]]
    conditions: NotRequired[PruneConditions]
    sparse_step: NotRequired[int]


class FailedLatencies(Record):
    """The reason why nothing was timed."""

    failed: str
    sparse_step: NotRequired[int]


class SparsityPattern(Record):
    """The zeros of a layer: their share of its weights, and a corner of the mask, True for nonzero weights."""

    name: str
    zeros: float
    weights: int
    shape: tuple[int, ...]
    nonzero: Any
