"""Variants, verdicts and what was left out: rows of result.json as the stages make them and reports read them."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from edgekit.core.config import Target
from edgekit.core.rows.devices import OnDeciding
from edgekit.core.rows.shared import BesideReference, DropFields

Model = Literal["baseline", "student", "pruned", "sparse"]
Precision = Literal["fp32", "fp16", "int8", "w8", "dynamic", "int4", "int4_dense", "int16x8"]
GivenUpBy = Literal["distill", "prune", "quantize", "convert", "benchmark"]
"""Stages that try steps and give some of them up."""
MadeElsewhere = Literal["baseline", "teacher", "rival"]
"""What a model that was not trained in the run can be in it."""


class RelativeLatency(TypedDict):
    """A limit of the p50, beside that of a reference; `sha256` of a rival."""

    ratio: float
    of: str
    sha256: NotRequired[str]


class RelativeSize(TypedDict):
    """A limit of the bytes, beside those of a reference; `bytes` of a rival."""

    ratio: float
    of: str
    bytes: NotRequired[int]


class TargetLimits(TypedDict):
    """Limits of one target, each in place of the budget's own; null: no limit."""

    latency_p50_ms: NotRequired[float | None]
    size_bytes: NotRequired[int | None]
    latency_p50: NotRequired[RelativeLatency | None]
    size: NotRequired[RelativeSize | None]


class Limits(TypedDict):
    """The budget: what a variant must meet, on validation and on the machine that decides."""

    accuracy_drop_pp: float
    accuracy_confidence: float
    latency_p50_ms: float | None
    size_bytes: int | None
    latency_p50: NotRequired[RelativeLatency]
    size: NotRequired[RelativeSize]
    targets: NotRequired[dict[str, TargetLimits]]


class RowLimits(TypedDict):
    """What one variant was held to, where the budget has relative limits or limits of single targets."""

    latency_p50_ms: float | None
    size_bytes: int | None
    beside: NotRequired[BesideReference]


class Met(TypedDict):
    """The verdict of a run: its winner, against the unmodified baseline and against post-training quantization."""

    met: Literal[True]
    winner: str
    p50_ms: float
    device: NotRequired[OnDeciding]
    speedup_vs_eager: float
    speedup_vs_eager_low: float
    speedup_vs_eager_high: float
    speedup_vs_post_training_baseline: float | None
    speedup_vs_post_training_baseline_low: float | None
    speedup_vs_post_training_baseline_high: float | None
    drop_validation_pp: float
    bound_validation_pp: float
    confidence: float
    drop_test_pp: float
    size_ratio: float


class Missed(TypedDict):
    """The verdict of a run in which no variant is inside the budget."""

    met: Literal[False]


class SecondAccuracy(TypedDict):
    """The other figure of accuracy that a task has, by its name; fractions."""

    metric: str
    validation: float
    test: float


class Facts(TypedDict):
    """What is known of a model without measuring time."""

    name: str
    model: Model
    precision: Precision
    method: Literal["float", "ptq", "qat", "mixed"]
    interpreter: str
    bytes: int
    accuracy_validation: float
    accuracy_test: float
    second_accuracy: NotRequired[SecondAccuracy]


class BaselineFacts(Facts):
    """The same of the baseline."""

    target: Literal["pytorch"]


class VariantFacts(Facts, DropFields):
    """The same of a variant, with its drop on validation."""

    zipped_bytes: int
    target: Target
    float_ops: list[str]
    debris: dict[str, int]


class CheckedVariant(VariantFacts):
    """A variant and every limit of the budget that it breaks."""

    inside_budget: bool
    reasons: list[str]


class NearestMiss(CheckedVariant):
    """The variant that exceeds its limits by the smallest share in all; `device` as in `VariantRow`."""

    p50_ms: float
    device: NotRequired[OnDeciding]
    limits: NotRequired[RowLimits]


class Latency(TypedDict):
    """Wall time of one call at batch 1, as measured in this run."""

    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    throughput_per_s: float
    calls: int


class BaselineRow(BaselineFacts, Latency):
    """The float model that the user came with, unmodified: by PyTorch eager, a file by its own interpreter."""


class VariantRow(CheckedVariant, Latency):
    """One deployable candidate: model, precision, target. Latencies are of this machine.

    `device` is there where devices decided, `limits` where the budget is more than two numbers for all targets.
    """

    speedup: float
    speedup_low: float
    speedup_high: float
    device: NotRequired[OnDeciding]
    limits: NotRequired[RowLimits]


class WaterfallStep(TypedDict):
    """One step from the baseline to the winner."""

    step: str
    variant: str
    p50_ms: float
    gain: NotRequired[float]
    gain_low: NotRequired[float]
    gain_high: NotRequired[float]
    kept: bool


class RivalFacts(TypedDict):
    """What is known of a file made by others without measuring time."""

    name: str
    sha256: str
    bytes: int
    accuracy_test: float


class Rival(RivalFacts, Latency):
    """A file made by others, and what the winner is beside it; measured in the same rounds."""

    winner: str | None
    winner_gain_pp: float | None
    winner_bytes_share: float | None
    winner_speedup: float | None
    winner_speedup_low: float | None
    winner_speedup_high: float | None


class SeenValidation(TypedDict):
    """Whether a model that was trained elsewhere is more often right on validation than chance explains."""

    name: str
    role: NotRequired[MadeElsewhere]
    accuracy_validation: float
    samples_validation: int
    accuracy_test: float
    samples_test: int
    p_value: float
    level: float
    known: bool


class LeftOut(TypedDict):
    """A variant that could not be made, or whose file said something else than the step before."""

    name: str
    model: Model
    precision: Precision
    target: Target
    kind: Literal["operator", "control flow", "shape", "process", "numerics", "rests", "other"]
    operator: str | None
    layer: str | None
    place: str | None
    cause: str
    advice: str | None
    reason: str


class Rejected(TypedDict):
    """A step that was tried and not kept; its figures are null where nothing could be measured."""

    stage: GivenUpBy
    what: str
    accuracy_validation: float | None
    drop_pp: float | None
    bound_pp: float | None
    reason: str
