"""Variants, verdicts and rejected steps: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from edgekit.core.schema.devices import DecidingDeviceLatency
from edgekit.core.schema.limits import AppliedLimits
from edgekit.core.schema.record import Record, Sha256, Share
from edgekit.core.strict import Target

Model = Literal["baseline", "student", "pruned", "sparse"]

Precision = Literal["fp32", "fp16", "int8", "w8", "dynamic", "int4", "int4_dense", "int16x8"]
RedundantOp = Literal[
    "transpose", "outer transpose", "reshape", "cast", "identity", "pad", "broadcast", "foldable", "copy"
]
"""Kinds of redundant operators.

- transpose: swaps axes inside the graph. outer transpose: swaps axes at the input or output of the graph. A file does
  not show whether a transpose comes from the network or from the converter, so the network's own are counted, too.
- reshape: keeps the shape, follows another reshape, or is a transpose of axes of length 1.
- cast: keeps the type or follows another cast. In TFLite it is also every quantize and dequantize inside the graph.
- identity: changes nothing. pad: the following convolution could pad by itself. broadcast: the following operator would
  broadcast by itself.
- foldable: is computed from constants alone. copy: a constant that is stored twice.
"""

RejectingStage = Literal["distill", "prune", "quantize", "convert", "benchmark"]
"""Stages that try steps and reject some of them."""

ExternalRole = Literal["baseline", "teacher", "rival"]
"""The possible roles of a model that was not trained in the run."""


class BudgetMet(Record):
    """The verdict of a successful run: its winner, compared with the baseline and with post-training quantization."""

    met: Annotated[Literal[True], Field(description="at least one variant is inside the budget")]
    winner: Annotated[str, Field(description="name of the overall winner")]
    p50_ms: Annotated[float, Field(gt=0, description="the winner's median on this machine, milliseconds")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency,
            Field(description="its latency on the device that decided; absent if this machine decided"),
        ]
    ]
    speedup_vs_eager: Annotated[
        float,
        Field(gt=0, description="the baseline's median divided by the winner's, as the median over the rounds"),
    ]
    speedup_vs_eager_low: Annotated[float, Field(gt=0, description="lower bound of that ratio's interval")]
    speedup_vs_eager_high: Annotated[float, Field(gt=0, description="upper bound of that ratio's interval")]
    speedup_vs_post_training_baseline: Annotated[
        float | None,
        Field(
            gt=0,
            description="median of the baseline's best int8 variant divided by the winner's; null: there is none",
        ),
    ]
    speedup_vs_post_training_baseline_low: Annotated[
        float | None, Field(gt=0, description="lower bound of that ratio's interval")
    ]
    speedup_vs_post_training_baseline_high: Annotated[
        float | None, Field(gt=0, description="upper bound of that ratio's interval")
    ]
    drop_validation_pp: Annotated[
        float, Field(description="accuracy below the baseline on validation, percentage points")
    ]
    bound_validation_pp: Annotated[float, Field(description="upper bound of the one-sided interval of that drop")]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="confidence of that interval")]
    drop_test_pp: Annotated[float, Field(description="accuracy below the baseline on test, percentage points")]
    size_ratio: Annotated[float, Field(gt=0, description="bytes of the baseline divided by those of the winner")]


class BudgetNotMet(Record):
    """The verdict of a run in which no variant is inside the budget."""

    met: Annotated[Literal[False], Field(description="no variant is inside the budget")]


class DropFields(Record):
    """The drop on validation with its upper bound: the fields of `core.tasks.accuracy_drop.Drop`."""

    drop_pp: Annotated[float, Field(description="accuracy below the baseline on validation, percentage points")]
    bound_pp: Annotated[
        float, Field(description="upper bound of the one-sided interval of that drop, which the budget limits")
    ]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="confidence of that interval")]
    lost: Annotated[
        int, Field(ge=0, description="validation samples that the baseline answers correctly and this model does not")
    ]
    gained: Annotated[
        int, Field(ge=0, description="validation samples that this model answers correctly and the baseline does not")
    ]
    samples: Annotated[int, Field(gt=0, description="validation samples that both answered")]
    least_pp: Annotated[
        float,
        Field(ge=0, description="smallest upper bound that this number of samples can show, even if none is lost"),
    ]


class MaybeDropFields(Record):
    """The fields of `DropFields` for a model that may not exist, in which case they are None."""

    drop_pp: float | None
    bound_pp: float | None
    confidence: float | None
    lost: int | None
    gained: int | None
    samples: int | None
    least_pp: float | None


class SecondAccuracy(Record):
    """A second accuracy metric, which is reported beside the first and decides nothing."""

    metric: Annotated[str, Field(description="name of the metric, such as mAP@0.5:0.95 for detection")]
    validation: Annotated[Share, Field(description="on validation, the split that decisions use")]
    test: Annotated[Share, Field(description="on test, the split that is read once, for this record")]


class AccuracyInterval(Record):
    """The interval of an accuracy, by a bootstrap of the samples of each split (Efron 1979)."""

    confidence: Annotated[Share, Field(description="confidence of the intervals")]
    validation_low: Annotated[Share, Field(description="lower end on validation")]
    validation_high: Annotated[Share, Field(description="upper end on validation")]
    test_low: Annotated[Share, Field(description="lower end on test")]
    test_high: Annotated[Share, Field(description="upper end on test")]


class ModelFacts(Record):
    """The facts about a model that need no time measurement."""

    name: Annotated[
        str, Field(description="the variant: model-precision-target, or baseline-eager, baseline-unmodified")
    ]
    model: Annotated[Model, Field(description="the network")]
    precision: Annotated[
        Precision,
        Field(
            description="its number format; w8: int8 weights, float arithmetic; dynamic: int8 with ranges per call; "
            "int4: 4-bit weights; int4_dense: those of dense layers alone; int16x8: int16 activations and int8 weights"
        ),
    ]
    method: Annotated[
        Literal["float", "ptq", "qat", "mixed"],
        Field(
            description="float, post-training quantization, quantization-aware training, or int8 except for some layers"
        ),
    ]
    interpreter: Annotated[str, Field(description="the interpreter, with its version")]
    bytes: Annotated[int, Field(gt=0, description="size of the model's files")]
    accuracy_validation: Annotated[Share, Field(description="on validation, the split that decisions use")]
    accuracy_test: Annotated[Share, Field(description="on test, the split that is read once, for this record")]
    second_accuracy: NotRequired[
        Annotated[SecondAccuracy, Field(description="the task's other accuracy metric; absent if it has only one")]
    ]
    accuracy_interval: NotRequired[
        Annotated[
            AccuracyInterval, Field(description="the interval of the accuracy; absent if it takes long to compute")
        ]
    ]


class BaselineFacts(ModelFacts):
    """The facts about the baseline that need no time measurement."""

    target: Annotated[Literal["pytorch"], Field(description="PyTorch: the baseline is not converted")]


class VariantFacts(ModelFacts, DropFields):
    """The facts about a variant that need no time measurement, with its drop on validation."""

    zipped_bytes: Annotated[int, Field(gt=0, description="size of its files, each compressed by zlib at level 9")]
    target: Annotated[Target, Field(description="the target that it was converted for")]
    float_ops: Annotated[list[str], Field(description="operators that compute in float, for int8 only")]
    debris: Annotated[
        dict[RedundantOp, Annotated[int, Field(gt=0)]],
        Field(
            description="number of redundant operators, which compute nothing, by kind; transpose: swaps axes inside "
            "the graph, the network's own transposes included; copy: a constant that is stored twice"
        ),
    ]


class CheckedVariant(VariantFacts):
    """A variant and every limit of the budget that it breaks."""

    inside_budget: Annotated[bool, Field(description="true if it breaks no limit")]
    reasons: Annotated[list[str], Field(description="the limits that it breaks, as text")]


class NearestMiss(CheckedVariant):
    """The variant that exceeds its limits by the smallest total share."""

    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency,
            Field(description="its latency on the device that decided; absent if this machine decided"),
        ]
    ]
    limits: NotRequired[
        Annotated[
            AppliedLimits,
            Field(description="the limits that it had to meet; absent if the two numbers of the budget express them"),
        ]
    ]


class Latency(Record):
    """Wall time of one call at batch 1, as measured in this run on this machine."""

    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    p90_ms: Annotated[float, Field(gt=0, description="90th percentile, milliseconds")]
    p95_ms: Annotated[float, Field(gt=0, description="95th percentile, milliseconds")]
    p99_ms: Annotated[float, Field(gt=0, description="99th percentile, milliseconds")]
    mean_ms: Annotated[float, Field(gt=0, description="mean, milliseconds")]
    throughput_per_s: Annotated[float, Field(gt=0, description="sequential calls per second")]
    calls: Annotated[int, Field(gt=0, description="how many calls were timed")]


class BaselineRow(BaselineFacts, Latency):
    """The user's unmodified float model: a network run by PyTorch eager, or a file run by its own interpreter."""


class VariantRow(CheckedVariant, Latency):
    """One deployable candidate: model, precision, target."""

    speedup: Annotated[
        float,
        Field(gt=0, description="the baseline's median divided by this variant's, as the median over the rounds"),
    ]
    speedup_low: Annotated[float, Field(gt=0, description="lower bound of that ratio's interval")]
    speedup_high: Annotated[float, Field(gt=0, description="upper bound of that ratio's interval")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency,
            Field(description="its latency on the device that decided; absent if this machine decided"),
        ]
    ]
    limits: NotRequired[
        Annotated[
            AppliedLimits,
            Field(description="the limits that it had to meet; absent if the two numbers of the budget express them"),
        ]
    ]


class WaterfallStep(Record):
    """One step from the baseline to the winner."""

    step: Annotated[str, Field(description="what was done")]
    variant: Annotated[str, Field(description="name of the resulting variant")]
    p50_ms: Annotated[float, Field(gt=0, description="that variant's median, milliseconds")]
    gain: NotRequired[
        Annotated[
            float, Field(gt=0, description="median before the step divided by the median after it; absent at the start")
        ]
    ]
    gain_low: NotRequired[
        Annotated[float, Field(gt=0, description="lower bound of that ratio's interval; absent at the start")]
    ]
    gain_high: NotRequired[
        Annotated[float, Field(gt=0, description="upper bound of that ratio's interval; absent at the start")]
    ]
    kept: Annotated[bool, Field(description="false if the step does not lead to the winner")]


class ReferenceModelFacts(Record):
    """The facts about a reference model that need no time measurement."""

    name: Annotated[str, Field(description="the file's name")]
    sha256: Annotated[Sha256, Field(description="of the file")]
    bytes: Annotated[int, Field(gt=0, description="size of the file, with a separate file of weights")]
    accuracy_test: Annotated[Share, Field(description="on test, the split that is read once, for this record")]


class ReferenceModelRow(ReferenceModelFacts, Latency):
    """A reference model compared with the winner, measured in the same rounds."""

    winner: Annotated[str | None, Field(description="name of the overall winner; null if there is none")]
    winner_gain_pp: Annotated[
        float | None, Field(description="accuracy of the winner minus that of this file on test, percentage points")
    ]
    winner_bytes_share: Annotated[
        float | None, Field(gt=0, description="bytes of the winner divided by those of this file")
    ]
    winner_speedup: Annotated[
        float | None,
        Field(gt=0, description="median of this file divided by the winner's, as the median over the rounds"),
    ]
    winner_speedup_low: Annotated[float | None, Field(gt=0, description="lower bound of that ratio's interval")]
    winner_speedup_high: Annotated[float | None, Field(gt=0, description="upper bound of that ratio's interval")]


class SeenValidation(Record):
    """Whether a model that was trained elsewhere is right on validation more often than chance explains.

    If so, it was probably trained on validation samples.
    """

    name: Annotated[str, Field(description="the file, or the builder of the network if only weights were given")]
    role: NotRequired[
        Annotated[
            ExternalRole,
            Field(description="its role in this run; absent from versions of edgekit that tested the baseline alone"),
        ]
    ]
    accuracy_validation: Annotated[Share, Field(description="on validation, the split that decisions use")]
    samples_validation: Annotated[int, Field(gt=0, description="samples of that split")]
    accuracy_test: Annotated[Share, Field(description="on test, the split that is read once, for this record")]
    samples_test: Annotated[int, Field(gt=0, description="samples of that split")]
    p_value: Annotated[
        float,
        Field(ge=0, le=1, description="p-value of Fisher's exact test, one-sided, for equal accuracy on both splits"),
    ]
    level: Annotated[float, Field(gt=0, lt=1, description="significance level of that test")]
    known: Annotated[
        bool,
        Field(
            description="true if the p-value is below the level: the model was probably trained on validation samples"
        ),
    ]


class LeftOutVariant(Record):
    """A variant that could not be converted, or whose outputs differ too much from the step before."""

    name: Annotated[str, Field(description="the variant: model-precision-target")]
    model: Annotated[Model, Field(description="the network")]
    precision: Annotated[Precision, Field(description="precision, as in variants")]
    target: Annotated[Target, Field(description="the target that it was to be converted for")]
    kind: Annotated[
        Literal["operator", "control flow", "shape", "process", "numerics", "rests", "other"],
        Field(
            description="process: the converter's process died; numerics: the outputs differ too much; "
            "rests: not tried, because its float model was left out"
        ),
    ]
    operator: Annotated[str | None, Field(description="the operator at which it failed; null: not known")]
    layer: Annotated[str | None, Field(description="the layer, by its module's name; null: not known")]
    place: Annotated[
        str | None, Field(description="where the layer is in the network's code, FILE:LINE; null: not known")
    ]
    cause: Annotated[str, Field(min_length=1, description="the cause, as reported by the converter or by edgekit")]
    advice: Annotated[str | None, Field(description="what to do instead; null if the cause says it")]
    reason: Annotated[str, Field(min_length=1, description="cause and advice in one line")]


class RejectedStep(Record):
    """A step that was tried and rejected; figures are null if nothing could be measured."""

    stage: Annotated[RejectingStage, Field(description="the stage that rejected it")]
    what: Annotated[str, Field(description="the step, the method or the variant")]
    accuracy_validation: Annotated[Share | None, Field(description="on validation, the split that decisions use")]
    drop_pp: Annotated[float | None, Field(description="accuracy below the baseline on validation, percentage points")]
    bound_pp: Annotated[float | None, Field(description="upper bound of the one-sided interval of that drop")]
    reason: Annotated[str, Field(min_length=1, description="why it was rejected")]
