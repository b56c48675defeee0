"""Everything that stands in result.json, field by field: what `docs/result.schema.json` is made from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.config import STAGES, TRAINING, Strict, Target
from edgekit.core.rows.variants import MadeElsewhere, Precision
from edgekit.core.tasks import Task
from edgekit.report.result.by_class import ByClass
from edgekit.report.result.conditions import Conditions
from edgekit.report.result.cost import Cost
from edgekit.report.result.decisions import Choice, Limit, Zeros
from edgekit.report.result.devices import DeviceClass, OnDeciding
from edgekit.report.result.limits import Limits, RowLimits
from edgekit.report.result.loads import Loads
from edgekit.report.result.parts import Bundle, Sha256, Sources, Stage
from edgekit.report.result.second_accuracy import SecondAccuracy, Share
from edgekit.report.result.streams import Streamed
from edgekit.targets.redundant_ops import Kind

StageName = Literal["origin", "profile", "distill", "prune", "quantize", "convert", "benchmark", "bundle"]


class Facts(Strict):
    """What is known of a model without measuring time."""

    name: str = Field(description="the variant: model-precision-target, or baseline-eager, baseline-unmodified")
    model: Literal["baseline", "student", "pruned", "sparse"] = Field(description="the network")
    precision: Precision = Field(
        description="its numbers; w8: int8 weights and float arithmetic, dynamic: int8 by the range of each call, "
        "int4: 4-bit weights, int4_dense: those of dense layers alone, int16x8: int16 activations and int8 weights"
    )
    method: Literal["float", "ptq", "qat", "mixed"] = Field(
        description="float, post-training quantization, trained for int8, or int8 but for some layers kept in float"
    )
    interpreter: str = Field(description="what ran it, with its version")
    bytes: int = Field(gt=0, description="size of the model's files")
    accuracy_validation: Share = Field(description="on the split that decisions are made on")
    accuracy_test: Share = Field(description="on the split that is read once, for this record")
    second_accuracy: SecondAccuracy | None = Field(
        None, description="the other figure of accuracy; absent where the task has only one"
    )


class Latency(Strict):
    """Wall time of one call at batch 1, as measured in this run, on this machine."""

    p50_ms: float = Field(gt=0, description="median, milliseconds")
    p90_ms: float = Field(gt=0, description="90th percentile, milliseconds")
    p95_ms: float = Field(gt=0, description="95th percentile, milliseconds")
    p99_ms: float = Field(gt=0, description="99th percentile, milliseconds")
    mean_ms: float = Field(gt=0, description="mean, milliseconds")
    throughput_per_s: float = Field(gt=0, description="calls made one after another, per second")
    calls: int = Field(gt=0, description="how many calls were timed")


class CheckedVariant(Facts):
    """A variant and every limit of the budget that it breaks."""

    zipped_bytes: int = Field(gt=0, description="size of its files, each compressed by zlib at level 9")
    target: Target = Field(description="what it was converted for")
    float_ops: list[str] = Field(description="operators that compute in float, for int8 only")
    debris: dict[Kind, Annotated[int, Field(gt=0)]] = Field(
        description="redundant operators, which the converter left behind and compute nothing, how many of each kind; "
        "transpose: of axes inside the graph, the network's own included; copy: a constant stored again"
    )
    drop_pp: float = Field(description="accuracy below the baseline on validation, percentage points")
    bound_pp: float = Field(description="upper end of the one-sided interval of that drop: what the budget is held to")
    confidence: float = Field(gt=0.5, lt=1, description="of that interval")
    lost: int = Field(ge=0, description="validation samples that the baseline answers rightly and this one wrongly")
    gained: int = Field(ge=0, description="validation samples that this one answers rightly and the baseline wrongly")
    samples: int = Field(gt=0, description="validation samples that both answered")
    least_pp: float = Field(ge=0, description="less cannot be shown by so many samples, even where none is lost")
    inside_budget: bool = Field(description="true where it breaks no limit")
    reasons: list[str] = Field(description="the limits that it breaks, in words")


class BaselineRow(Facts, Latency):
    """The unmodified float model of the user: a network by PyTorch eager, a file by its own interpreter."""

    target: Literal["pytorch"] = Field(description="PyTorch, which it is not converted from")


class VariantRow(CheckedVariant, Latency):
    """One deployable candidate: model, precision, target."""

    speedup: float = Field(gt=0, description="the baseline's median over this one's: the median over the rounds")
    speedup_low: float = Field(gt=0, description="lower end of that ratio's interval")
    speedup_high: float = Field(gt=0, description="upper end of that ratio's interval")
    device: OnDeciding | None = Field(None, description="on the device that decided; absent where this machine decided")
    limits: RowLimits | None = Field(
        None, description="what it was held to; absent where the budget's two numbers say it"
    )


class NearestMiss(CheckedVariant):
    """The variant that exceeds its limits by the smallest share in all."""

    p50_ms: float = Field(gt=0, description="median, milliseconds")
    device: OnDeciding | None = Field(None, description="on the device that decided; absent where this machine decided")
    limits: RowLimits | None = Field(
        None, description="what it was held to; absent where the budget's two numbers say it"
    )


class Missed(Strict):
    """The verdict of a run in which no variant is inside the budget."""

    met: Literal[False] = Field(description="no variant is inside the budget")


class Met(Strict):
    """The verdict of a run: its winner, against the unmodified baseline and against post-training quantization."""

    met: Literal[True] = Field(description="at least one variant is inside the budget")
    winner: str = Field(description="name of the variant that wins over all targets")
    p50_ms: float = Field(gt=0, description="its median on this machine, milliseconds")
    device: OnDeciding | None = Field(None, description="on the device that decided; absent where this machine decided")
    speedup_vs_eager: float = Field(gt=0, description="the baseline's median over the winner's, over the rounds")
    speedup_vs_eager_low: float = Field(gt=0, description="lower end of that ratio's interval")
    speedup_vs_eager_high: float = Field(gt=0, description="upper end of that ratio's interval")
    speedup_vs_post_training_baseline: float | None = Field(
        gt=0, description="median of the best int8 variant of the baseline over the winner's; null: none was converted"
    )
    speedup_vs_post_training_baseline_low: float | None = Field(gt=0, description="lower end of that ratio's interval")
    speedup_vs_post_training_baseline_high: float | None = Field(gt=0, description="upper end of that ratio's interval")
    drop_validation_pp: float = Field(description="accuracy below the baseline on validation, percentage points")
    bound_validation_pp: float = Field(description="upper end of the one-sided interval of that drop")
    confidence: float = Field(gt=0.5, lt=1, description="of that interval")
    drop_test_pp: float = Field(description="accuracy below the baseline on test, percentage points")
    size_ratio: float = Field(gt=0, description="bytes of the baseline over those of the winner")


class WaterfallStep(Strict):
    """One step from the baseline to the winner."""

    step: str = Field(description="what was done")
    variant: str = Field(description="name of the variant that it led to")
    p50_ms: float = Field(gt=0, description="that variant's median, milliseconds")
    gain: float | None = Field(None, gt=0, description="median before the step over the one after; absent at the start")
    gain_low: float | None = Field(None, gt=0, description="lower end of that ratio's interval; absent at the start")
    gain_high: float | None = Field(None, gt=0, description="upper end of that ratio's interval; absent at the start")
    kept: bool = Field(description="false where the step does not lead to the winner")


class Rival(Latency):
    """A file made by others, and what the winner is beside it; measured in the same rounds."""

    name: str = Field(description="the file's name")
    sha256: Sha256 = Field(description="of the file")
    bytes: int = Field(gt=0, description="size of the file, with its weights' where they lie beside it")
    accuracy_test: Share = Field(description="on the split that is read once, for this record")
    winner: str | None = Field(description="name of the variant that wins over all targets; null where none does")
    winner_gain_pp: float | None = Field(description="accuracy of the winner above this on test, percentage points")
    winner_bytes_share: float | None = Field(gt=0, description="the winner's bytes over this one's")
    winner_speedup: float | None = Field(gt=0, description="this one's median over the winner's, over the rounds")
    winner_speedup_low: float | None = Field(gt=0, description="lower end of that ratio's interval")
    winner_speedup_high: float | None = Field(gt=0, description="upper end of that ratio's interval")


class SeenValidation(Strict):
    """Whether a model that was trained elsewhere is more often right on validation than chance explains."""

    name: str = Field(description="the file, or what builds the network of the weights that were given")
    role: MadeElsewhere | None = Field(
        None, description="what it is in this run; absent from an edgekit that tested the baseline alone"
    )
    accuracy_validation: Share = Field(description="on the split that decisions are made on")
    samples_validation: int = Field(gt=0, description="samples of that split")
    accuracy_test: Share = Field(description="on the split that is read once, for this record")
    samples_test: int = Field(gt=0, description="samples of that split")
    p_value: float = Field(ge=0, le=1, description="of Fisher's exact test, one-sided: were both splits alike to it")
    level: float = Field(gt=0, lt=1, description="of that test")
    known: bool = Field(description="true where the p-value is within the level: it seems to know validation")


class Rejected(Strict):
    """A step that was tried and not kept; its figures are null where nothing could be measured."""

    stage: Literal["distill", "prune", "quantize", "convert", "benchmark"] = Field(description="which gave it up")
    what: str = Field(description="the step, the method or the variant")
    accuracy_validation: Share | None = Field(description="on the split that decisions are made on")
    drop_pp: float | None = Field(description="accuracy below the baseline on validation, percentage points")
    bound_pp: float | None = Field(description="upper end of the one-sided interval of that drop")
    reason: str = Field(min_length=1, description="why it was not kept, in words")


class LeftOut(Strict):
    """A variant that could not be made, or whose file said something else than the step before."""

    name: str = Field(description="the variant: model-precision-target")
    model: Literal["baseline", "student", "pruned", "sparse"] = Field(description="the network")
    precision: Precision = Field(description="as of a variant")
    target: Target = Field(description="what it was to be converted for")
    kind: Literal["operator", "control flow", "shape", "process", "numerics", "rests", "other"] = Field(
        description="process: the converter died; numerics: the file left its tolerance; "
        "rests: it is made from a float model that was left out"
    )
    operator: str | None = Field(description="the operator that it failed at; null: not known")
    layer: str | None = Field(description="the layer, by its module's name; null: not known")
    place: str | None = Field(description="where that stands in the network's code, FILE:LINE; null: not known")
    cause: str = Field(min_length=1, description="what was found, in the converter's words or edgekit's")
    advice: str | None = Field(description="what to do instead; null where the cause says it")
    reason: str = Field(min_length=1, description="all of it in one line")


class Result(Strict):
    """The verdict of a run of edgekit with all evidence for it, from the run's sealed artifacts."""

    schema_: Literal["edgekit/result/2"] = Field(alias="schema", description="$id of this schema")
    format: Literal[2] = Field(description="number of this format; it is raised when a reader has to know")
    edgekit: str = Field(description="version of edgekit")
    name: str = Field(description="name of the run and of its bundles")
    version: str = Field(description="version of the bundles")
    config: dict[str, Any] = Field(description="the config as it was given, settings applied")
    task: Task = Field(
        description="what the network is for; accuracy is top-1, R², F1, AUC, mAP or precision@1, a fraction"
    )
    data_digest: Sha256 = Field(description="of every sample, label, split and class name")
    data_notes: list[str] = Field(
        default_factory=list, description="what was skipped or changed while the data were read; absent for nothing"
    )
    budget: Limits = Field(description="the limits that variants were judged by")
    verdict: Met | Missed = Field(description="whether a variant met the budget, and what the winner gained")
    nearest_miss: NearestMiss | None = Field(description="what came nearest; null where the budget was met")
    winners: dict[Target, str] = Field(description="name of the winning variant by target")
    unmet: dict[Target, NearestMiss | None] = Field(description="what came nearest by target that has no winner")
    variants: list[Annotated[BaselineRow | VariantRow, Field(discriminator="target")]] = Field(
        min_length=1, description="the unmodified baseline first, then every variant"
    )
    decisions: list[Choice | Limit | Zeros] = Field(
        description="every decision that rests on a latency, with its evidence"
    )
    waterfall: list[WaterfallStep] = Field(description="from the baseline to the winner; empty where there is none")
    rivals: list[Rival] = Field(description="files made by others that the config names, compared with the winner")
    loads: Loads = Field(description="the winners and the baseline under load")
    cost: Cost | None = Field(
        None, description="what a call costs, and when the run was worth it; absent from an edgekit that measured none"
    )
    seen_validation: SeenValidation | None = Field(
        description="whether the baseline knows validation; null where it was trained here, or not tested"
    )
    others_seen_validation: list[SeenValidation] | None = Field(
        None, description="the same of the teacher's file and of the rivals; absent where no such file was tested"
    )
    by_class: ByClass = Field(description="accuracy class by class, of the baseline and of what ships")
    devices: DeviceClass | None = Field(
        None, description="the devices whose latencies decided; absent where this machine did"
    )
    streams: dict[Target, Streamed] = Field(
        description="answers of the bundles over time; empty where validation has no order in time"
    )
    rejected: list[Rejected] = Field(description="every step that was tried and not kept, in the order of the pipeline")
    left_out: list[LeftOut] = Field(description="variants that could not be made or were wrong, in the order of making")
    targets_left_out: dict[Target, str] = Field(
        default_factory=dict,
        description="why nothing could be made for a target that the config does not name; absent for none",
    )
    conditions: Conditions = Field(description="where and how it was measured")
    stages: dict[StageName, Stage] = Field(description="the artifacts by stage, as far as the run came")
    bundles: dict[Target, Bundle] = Field(description="the bundles by target; empty where the budget was missed")
    sources: Sources = Field(description="by which it is known whether this result is still that of its run")

    @model_validator(mode="after")
    def _agrees(self) -> Result:
        """What no schema can say: that the parts speak of the same variants."""
        baseline, *rows = self.variants
        variants = [row for row in rows if isinstance(row, VariantRow)]
        won = set(self.winners.items())
        recorded = {(choice.decision, choice.chosen) for choice in self.decisions if isinstance(choice, Choice)}
        winner = self.verdict.winner if isinstance(self.verdict, Met) else None
        agrees = {
            "variants": isinstance(baseline, BaselineRow) and variants == rows,
            "winners": won <= {(row.target, row.name) for row in variants if row.inside_budget},
            "budget": all(row.bound_pp <= self.budget.accuracy_drop_pp for row in variants if row.inside_budget),
            "rejected": {row.name for row in variants if not row.inside_budget} <= {row.what for row in self.rejected},
            "left_out": not {row.name for row in self.left_out} & {row.name for row in self.variants}
            and {row.name for row in self.left_out} <= {row.what for row in self.rejected},
            "loads": {run.name for run in self.loads.runs} <= {row.name for row in self.variants},
            "cost": self.cost is None or {row.name for row in self.cost.calls} == {row.name for row in self.variants},
            "by_class": set(self.by_class.variants) <= {row.name for row in self.variants},
            "unmet": not set(self.unmet) & set(self.winners),
            "targets_left_out": set(self.targets_left_out) <= {each for each, near in self.unmet.items() if not near},
            "decisions": {(f"winner of {target}", name) for target, name in won} <= recorded,
            "verdict": winner in self.winners.values() if self.winners else winner is None,
            "streams": set(self.streams) <= set(self.bundles),
            "devices": self.devices is None
            or self.devices.slowest in ({each.host for each in self.devices.devices} or {""}),
            "bundles": {(target, bundle.variant) for target, bundle in self.bundles.items()} == won,
            "stages": set(self.stages) | {"bundle"} in ({"origin", *STAGES}, {"origin", *STAGES} - set(TRAINING))
            and ("bundle" in self.stages) == bool(self.bundles),
        }
        if not all(agrees.values()):
            raise ValueError(f"contradicts the rest: {', '.join(part for part, good in agrees.items() if not good)}")
        return self
