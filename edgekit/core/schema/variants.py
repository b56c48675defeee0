"""Variants, verdicts, and what was given up: rows of result.json as stages make them and reports read them."""

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
"""transpose: axes change places inside the graph; outer transpose: the same at its input or output; reshape: one of
its own shape, one behind another, a transpose of axes of 1; cast: to the type it has, one behind another, in TFLite
every quantize and dequantize inside the graph; identity: changes nothing; pad: the convolution behind could do it;
broadcast: the operator behind would do it; foldable: computed from constants alone; copy: a constant stored again.
A file cannot tell the network's own transposes from a converter's: both are counted.
"""

RejectingStage = Literal["distill", "prune", "quantize", "convert", "benchmark"]
"""Stages that try steps and give some of them up."""

ExternalRole = Literal["baseline", "teacher", "rival"]
"""What a model that was not trained in the run can be in it."""


class BudgetMet(Record):
    """The verdict of a run: its winner, against the unmodified baseline and against post-training quantization."""

    met: Annotated[Literal[True], Field(description="at least one variant is inside the budget")]
    winner: Annotated[str, Field(description="name of the variant that wins over all targets")]
    p50_ms: Annotated[float, Field(gt=0, description="its median on this machine, milliseconds")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency, Field(description="on the device that decided; absent where this machine decided")
        ]
    ]
    speedup_vs_eager: Annotated[
        float, Field(gt=0, description="the baseline's median over the winner's, over the rounds")
    ]
    speedup_vs_eager_low: Annotated[float, Field(gt=0, description="lower end of that ratio's interval")]
    speedup_vs_eager_high: Annotated[float, Field(gt=0, description="upper end of that ratio's interval")]
    speedup_vs_post_training_baseline: Annotated[
        float | None,
        Field(
            gt=0,
            description="median of the best int8 variant of the baseline over the winner's; null: none was converted",
        ),
    ]
    speedup_vs_post_training_baseline_low: Annotated[
        float | None, Field(gt=0, description="lower end of that ratio's interval")
    ]
    speedup_vs_post_training_baseline_high: Annotated[
        float | None, Field(gt=0, description="upper end of that ratio's interval")
    ]
    drop_validation_pp: Annotated[
        float, Field(description="accuracy below the baseline on validation, percentage points")
    ]
    bound_validation_pp: Annotated[float, Field(description="upper end of the one-sided interval of that drop")]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="of that interval")]
    drop_test_pp: Annotated[float, Field(description="accuracy below the baseline on test, percentage points")]
    size_ratio: Annotated[float, Field(gt=0, description="bytes of the baseline over those of the winner")]


class BudgetNotMet(Record):
    """The verdict of a run in which no variant is inside the budget."""

    met: Annotated[Literal[False], Field(description="no variant is inside the budget")]


class DropFields(Record):
    """The drop on validation with its bound: `core.tasks.accuracy_drop.Drop` as plain fields."""

    drop_pp: Annotated[float, Field(description="accuracy below the baseline on validation, percentage points")]
    bound_pp: Annotated[
        float, Field(description="upper end of the one-sided interval of that drop: what the budget is held to")
    ]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="of that interval")]
    lost: Annotated[
        int, Field(ge=0, description="validation samples that the baseline answers rightly and this one wrongly")
    ]
    gained: Annotated[
        int, Field(ge=0, description="validation samples that this one answers rightly and the baseline wrongly")
    ]
    samples: Annotated[int, Field(gt=0, description="validation samples that both answered")]
    least_pp: Annotated[
        float, Field(ge=0, description="less cannot be shown by so many samples, even where none is lost")
    ]


class MaybeDropFields(Record):
    """The same of something that may not have been made; None where it was not."""

    drop_pp: float | None
    bound_pp: float | None
    confidence: float | None
    lost: int | None
    gained: int | None
    samples: int | None
    least_pp: float | None


class SecondAccuracy(Record):
    """Another figure of accuracy, which stands beside the first and decides nothing."""

    metric: Annotated[str, Field(description="its name: mAP@0.5:0.95 of a detection")]
    validation: Annotated[Share, Field(description="on the split that decisions are made on")]
    test: Annotated[Share, Field(description="on the split that is read once, for this record")]


class ModelFacts(Record):
    """What is known of a model without measuring time."""

    name: Annotated[
        str, Field(description="the variant: model-precision-target, or baseline-eager, baseline-unmodified")
    ]
    model: Annotated[Model, Field(description="the network")]
    precision: Annotated[
        Precision,
        Field(
            description="its numbers; w8: int8 weights and float arithmetic, dynamic: int8 by the range of each call, "
            "int4: 4-bit weights, int4_dense: those of dense layers alone, int16x8: int16 activations and int8 weights"
        ),
    ]
    method: Annotated[
        Literal["float", "ptq", "qat", "mixed"],
        Field(
            description="float, post-training quantization, trained for int8, or int8 but for some layers kept in float"
        ),
    ]
    interpreter: Annotated[str, Field(description="what ran it, with its version")]
    bytes: Annotated[int, Field(gt=0, description="size of the model's files")]
    accuracy_validation: Annotated[Share, Field(description="on the split that decisions are made on")]
    accuracy_test: Annotated[Share, Field(description="on the split that is read once, for this record")]
    second_accuracy: NotRequired[
        Annotated[SecondAccuracy, Field(description="the other figure of accuracy; absent where the task has only one")]
    ]


class BaselineFacts(ModelFacts):
    """The same of the baseline."""

    target: Annotated[Literal["pytorch"], Field(description="PyTorch, which it is not converted from")]


class VariantFacts(ModelFacts, DropFields):
    """The same of a variant, with its drop on validation."""

    zipped_bytes: Annotated[int, Field(gt=0, description="size of its files, each compressed by zlib at level 9")]
    target: Annotated[Target, Field(description="what it was converted for")]
    float_ops: Annotated[list[str], Field(description="operators that compute in float, for int8 only")]
    debris: Annotated[
        dict[RedundantOp, Annotated[int, Field(gt=0)]],
        Field(
            description="redundant operators, which the converter left behind and compute nothing, how many of each "
            "kind; "
            "transpose: of axes inside the graph, the network's own included; copy: a constant stored again"
        ),
    ]


class CheckedVariant(VariantFacts):
    """A variant and every limit of the budget that it breaks."""

    inside_budget: Annotated[bool, Field(description="true where it breaks no limit")]
    reasons: Annotated[list[str], Field(description="the limits that it breaks, in words")]


class NearestMiss(CheckedVariant):
    """The variant that exceeds its limits by the smallest share in all."""

    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency, Field(description="on the device that decided; absent where this machine decided")
        ]
    ]
    limits: NotRequired[
        Annotated[AppliedLimits, Field(description="what it was held to; absent where the budget's two numbers say it")]
    ]


class Latency(Record):
    """Wall time of one call at batch 1, as measured in this run, on this machine."""

    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    p90_ms: Annotated[float, Field(gt=0, description="90th percentile, milliseconds")]
    p95_ms: Annotated[float, Field(gt=0, description="95th percentile, milliseconds")]
    p99_ms: Annotated[float, Field(gt=0, description="99th percentile, milliseconds")]
    mean_ms: Annotated[float, Field(gt=0, description="mean, milliseconds")]
    throughput_per_s: Annotated[float, Field(gt=0, description="calls made one after another, per second")]
    calls: Annotated[int, Field(gt=0, description="how many calls were timed")]


class BaselineRow(BaselineFacts, Latency):
    """The unmodified float model of the user: a network by PyTorch eager, a file by its own interpreter."""


class VariantRow(CheckedVariant, Latency):
    """One deployable candidate: model, precision, target."""

    speedup: Annotated[
        float, Field(gt=0, description="the baseline's median over this one's: the median over the rounds")
    ]
    speedup_low: Annotated[float, Field(gt=0, description="lower end of that ratio's interval")]
    speedup_high: Annotated[float, Field(gt=0, description="upper end of that ratio's interval")]
    device: NotRequired[
        Annotated[
            DecidingDeviceLatency, Field(description="on the device that decided; absent where this machine decided")
        ]
    ]
    limits: NotRequired[
        Annotated[AppliedLimits, Field(description="what it was held to; absent where the budget's two numbers say it")]
    ]


class WaterfallStep(Record):
    """One step from the baseline to the winner."""

    step: Annotated[str, Field(description="what was done")]
    variant: Annotated[str, Field(description="name of the variant that it led to")]
    p50_ms: Annotated[float, Field(gt=0, description="that variant's median, milliseconds")]
    gain: NotRequired[
        Annotated[float, Field(gt=0, description="median before the step over the one after; absent at the start")]
    ]
    gain_low: NotRequired[
        Annotated[float, Field(gt=0, description="lower end of that ratio's interval; absent at the start")]
    ]
    gain_high: NotRequired[
        Annotated[float, Field(gt=0, description="upper end of that ratio's interval; absent at the start")]
    ]
    kept: Annotated[bool, Field(description="false where the step does not lead to the winner")]


class ReferenceModelFacts(Record):
    """What is known of a file made by others without measuring time."""

    name: Annotated[str, Field(description="the file's name")]
    sha256: Annotated[Sha256, Field(description="of the file")]
    bytes: Annotated[int, Field(gt=0, description="size of the file, with its weights' where they lie beside it")]
    accuracy_test: Annotated[Share, Field(description="on the split that is read once, for this record")]


class ReferenceModelRow(ReferenceModelFacts, Latency):
    """A file made by others, and what the winner is beside it; measured in the same rounds."""

    winner: Annotated[
        str | None, Field(description="name of the variant that wins over all targets; null where none does")
    ]
    winner_gain_pp: Annotated[
        float | None, Field(description="accuracy of the winner above this on test, percentage points")
    ]
    winner_bytes_share: Annotated[float | None, Field(gt=0, description="the winner's bytes over this one's")]
    winner_speedup: Annotated[
        float | None, Field(gt=0, description="this one's median over the winner's, over the rounds")
    ]
    winner_speedup_low: Annotated[float | None, Field(gt=0, description="lower end of that ratio's interval")]
    winner_speedup_high: Annotated[float | None, Field(gt=0, description="upper end of that ratio's interval")]


class SeenValidation(Record):
    """Whether a model that was trained elsewhere is more often right on validation than chance explains."""

    name: Annotated[str, Field(description="the file, or what builds the network of the weights that were given")]
    role: NotRequired[
        Annotated[
            ExternalRole,
            Field(description="what it is in this run; absent from an edgekit that tested the baseline alone"),
        ]
    ]
    accuracy_validation: Annotated[Share, Field(description="on the split that decisions are made on")]
    samples_validation: Annotated[int, Field(gt=0, description="samples of that split")]
    accuracy_test: Annotated[Share, Field(description="on the split that is read once, for this record")]
    samples_test: Annotated[int, Field(gt=0, description="samples of that split")]
    p_value: Annotated[
        float, Field(ge=0, le=1, description="of Fisher's exact test, one-sided: were both splits alike to it")
    ]
    level: Annotated[float, Field(gt=0, lt=1, description="of that test")]
    known: Annotated[bool, Field(description="true where the p-value is within the level: it seems to know validation")]


class LeftOutVariant(Record):
    """A variant that could not be made, or whose file said something else than the step before."""

    name: Annotated[str, Field(description="the variant: model-precision-target")]
    model: Annotated[Model, Field(description="the network")]
    precision: Annotated[Precision, Field(description="as of a variant")]
    target: Annotated[Target, Field(description="what it was to be converted for")]
    kind: Annotated[
        Literal["operator", "control flow", "shape", "process", "numerics", "rests", "other"],
        Field(
            description="process: the converter died; numerics: the file left its tolerance; "
            "rests: it is made from a float model that was left out"
        ),
    ]
    operator: Annotated[str | None, Field(description="the operator that it failed at; null: not known")]
    layer: Annotated[str | None, Field(description="the layer, by its module's name; null: not known")]
    place: Annotated[
        str | None, Field(description="where that stands in the network's code, FILE:LINE; null: not known")
    ]
    cause: Annotated[str, Field(min_length=1, description="what was found, in the converter's words or edgekit's")]
    advice: Annotated[str | None, Field(description="what to do instead; null where the cause says it")]
    reason: Annotated[str, Field(min_length=1, description="all of it in one line")]


class RejectedStep(Record):
    """A step that was tried and not kept; its figures are null where nothing could be measured."""

    stage: Annotated[RejectingStage, Field(description="which gave it up")]
    what: Annotated[str, Field(description="the step, the method or the variant")]
    accuracy_validation: Annotated[Share | None, Field(description="on the split that decisions are made on")]
    drop_pp: Annotated[float | None, Field(description="accuracy below the baseline on validation, percentage points")]
    bound_pp: Annotated[float | None, Field(description="upper end of the one-sided interval of that drop")]
    reason: Annotated[str, Field(min_length=1, description="why it was not kept, in words")]
