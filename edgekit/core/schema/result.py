"""result.json as a whole: its type, its check, and the JSON schema that docs/result.schema.json publishes.

After changing a record, run `python -m edgekit.core.schema > docs/result.schema.json` to publish the schema again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, GetPydanticSchema, TypeAdapter

from edgekit.core.config import STAGES, TRAINING_STAGES
from edgekit.core.schema.branches import BranchLosses
from edgekit.core.schema.by_class import ByClass
from edgekit.core.schema.conditions import Conditions
from edgekit.core.schema.cost import Cost
from edgekit.core.schema.decisions import LatencyDecision, SparsityDecision, WinnerDecision, is_winner_decision
from edgekit.core.schema.devices import DeviceClass
from edgekit.core.schema.limits import BudgetLimits
from edgekit.core.schema.loads import Loads
from edgekit.core.schema.record import Record, Sha256, Timestamp
from edgekit.core.schema.streams import StreamResult
from edgekit.core.schema.training import CrossValidation, TrainedWeights
from edgekit.core.schema.variants import (
    BaselineRow,
    BudgetMet,
    BudgetNotMet,
    LeftOutVariant,
    NearestMiss,
    ReferenceModelRow,
    RejectedStep,
    SeenValidation,
    VariantRow,
    WaterfallStep,
)
from edgekit.core.strict import Target
from edgekit.core.tasks import Task

FORMAT = 2
SCHEMA = f"edgekit/result/{FORMAT}"
StageName = Literal["origin", "profile", "distill", "prune", "quantize", "convert", "benchmark", "bundle"]
TargetKey = Annotated[str, GetPydanticSchema(lambda _, schema_of: schema_of(Target))]
StageKey = Annotated[str, GetPydanticSchema(lambda _, schema_of: schema_of(StageName))]
"""Types of dictionary keys.

For mypy they are any text, so that readers can loop over names. The check allows only names of targets and stages.
"""


class StageRecord(Record):
    """The sealed artifact of one stage."""

    digest: Annotated[Sha256, Field(description="digest of its content")]
    key: Annotated[Sha256, Field(description="its cache key: the digest of everything that its content depends on")]
    finished: Annotated[Timestamp, Field(description="when it was sealed, UTC")]
    seconds: Annotated[float, Field(ge=0, description="wall time of its work")]
    cpu_seconds: NotRequired[
        Annotated[
            float,
            Field(
                ge=0,
                description="processor time of its work, with all threads and child processes; absent: not recorded",
            ),
        ]
    ]


class BundleRecord(Record):
    """A bundle, the file to copy to a device."""

    file: Annotated[str, Field(pattern=r"\.edge\.zip$", description="its name, in the folder bundles/")]
    sha256: Annotated[Sha256, Field(description="of the file")]
    bytes: Annotated[int, Field(gt=0, description="size of the file")]
    variant: Annotated[str, Field(description="name of the variant inside")]
    commands: Annotated[list[str], Field(description="commands to run on the device")]


class ResultSources(Record):
    """Digests of what the result was made from."""

    digest: Annotated[
        Sha256, Field(description="digest of everything else in this result, and of the records of the artifacts")
    ]
    code: Annotated[Sha256, Field(description="digest of the edgekit code that made it")]


class Result(Record):
    """The verdict of a run of edgekit with all evidence for it, taken from the run's sealed artifacts."""

    schema: Annotated[Literal["edgekit/result/2"], Field(description="$id of this schema")]
    format: Annotated[Literal[2], Field(description="number of this format; it grows when readers have to change")]
    edgekit: Annotated[str, Field(description="version of edgekit")]
    name: Annotated[str, Field(description="name of the run and of its bundles")]
    version: Annotated[str, Field(description="version of the bundles")]
    config: Annotated[dict[str, Any], Field(description="the config as the user wrote it, with settings applied")]
    task: Annotated[
        Task,
        Field(
            description="what the network is for; it decides what accuracy is: top-1, R², F1, AUC, mAP, mIoU or "
            "precision@1, as a fraction"
        ),
    ]
    data_digest: Annotated[Sha256, Field(description="digest of every sample, label, split and class name")]
    data_notes: NotRequired[
        Annotated[
            list[str], Field(description="what was skipped or changed while reading the data; absent if nothing was")
        ]
    ]
    pretrained: NotRequired[
        Annotated[
            list[TrainedWeights], Field(description="trained weights from which training started; absent if none")
        ]
    ]
    cross_validation: NotRequired[
        Annotated[CrossValidation, Field(description="of the baseline, if `profile.folds` asked for it")]
    ]
    budget: Annotated[BudgetLimits, Field(description="the limits that variants had to meet")]
    verdict: Annotated[
        BudgetMet | BudgetNotMet, Field(description="whether a variant met the budget, and what the winner gained")
    ]
    nearest_miss: Annotated[
        NearestMiss | None, Field(description="the variant that came nearest; null if the budget was met")
    ]
    winners: Annotated[dict[TargetKey, str], Field(description="name of the winning variant by target")]
    unmet: Annotated[
        dict[TargetKey, NearestMiss | None],
        Field(description="the variant that came nearest, for each target without a winner"),
    ]
    variants: Annotated[
        list[Annotated[BaselineRow | VariantRow, Field(discriminator="target")]],
        Field(min_length=1, description="the unmodified baseline first, then every variant"),
    ]
    decisions: Annotated[
        list[WinnerDecision | LatencyDecision | SparsityDecision],
        Field(description="every decision that rests on a latency, with its evidence"),
    ]
    waterfall: Annotated[
        list[WaterfallStep], Field(description="from the baseline to the winner; empty if there is no winner")
    ]
    rivals: Annotated[
        list[ReferenceModelRow],
        Field(description="the reference models of the config, compared with the winner"),
    ]
    loads: Annotated[Loads, Field(description="the winners and the baseline under load")]
    cost: NotRequired[
        Annotated[
            Cost,
            Field(
                description="what a call costs, and when the run has paid off; "
                "absent from versions of edgekit that did not measure it"
            ),
        ]
    ]
    seen_validation: Annotated[
        SeenValidation | None,
        Field(
            description="whether the baseline was trained on validation samples; null if this run trained it, or if "
            "this was not tested"
        ),
    ]
    others_seen_validation: NotRequired[
        Annotated[
            list[SeenValidation],
            Field(description="the same for the teacher's file and reference models; absent if none was tested"),
        ]
    ]
    by_class: Annotated[ByClass, Field(description="accuracy by class, for the baseline and the variants that ship")]
    branches: NotRequired[
        Annotated[
            list[BranchLosses],
            Field(description="which outputs of a detector lost its accuracy in int8; absent if none lost too much"),
        ]
    ]
    devices: NotRequired[
        Annotated[DeviceClass, Field(description="the devices whose latencies decided; absent if this machine decided")]
    ]
    streams: Annotated[
        dict[TargetKey, StreamResult],
        Field(description="answers of the bundles to streams; empty if validation has no temporal order"),
    ]
    rejected: Annotated[
        list[RejectedStep], Field(description="every step that was tried and rejected, in the order of the pipeline")
    ]
    left_out: Annotated[
        list[LeftOutVariant],
        Field(description="variants that could not be converted or were wrong, in the order of conversion"),
    ]
    targets_left_out: NotRequired[
        Annotated[
            dict[TargetKey, str],
            Field(description="why a target that the config does not name has no variants; absent if there is none"),
        ]
    ]
    conditions: Annotated[Conditions, Field(description="where and how latencies were measured")]
    stages: Annotated[dict[StageKey, StageRecord], Field(description="the artifacts by stage, as far as the run came")]
    bundles: Annotated[
        dict[TargetKey, BundleRecord], Field(description="the bundles by target; empty if the budget was missed")
    ]
    sources: Annotated[
        ResultSources, Field(description="digests that show whether this result still belongs to its run")
    ]


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of result.json."""
    schema = TypeAdapter(Result).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}


def validate_result(result: Mapping[str, Any]) -> None:
    """Raise pydantic's ValidationError if `result` does not match the schema, which is a bug in edgekit."""
    _adapter().validate_json(json.dumps(result, allow_nan=False))


@functools.cache
def _adapter() -> TypeAdapter[Result]:
    return TypeAdapter(Annotated[Result, AfterValidator(_check_consistency)])


def _check_consistency(result: Result) -> Result:
    """Check what a JSON schema cannot express: that all parts of a result refer to the same variants."""
    baseline, *rows = result["variants"]
    variants = [row for row in rows if row["target"] != "pytorch"]
    names = {row["name"] for row in result["variants"]}
    winners, verdict = set(result["winners"].items()), result["verdict"]
    over_budget = {row["name"] for row in variants if not row["inside_budget"]}
    rejected = {row["what"] for row in result["rejected"]}
    left_out = {row["name"] for row in result["left_out"]}
    chosen = {(row["decision"], row["chosen"]) for row in result["decisions"] if is_winner_decision(row)}
    max_drop_pp = result["budget"]["accuracy_drop_pp"]
    devices = result.get("devices")
    is_consistent = {
        "variants": baseline["target"] == "pytorch" and variants == rows,
        "winners": winners <= {(row["target"], row["name"]) for row in variants if row["inside_budget"]},
        "budget": all(row["bound_pp"] <= max_drop_pp for row in variants if row["inside_budget"]),
        "rejected": over_budget <= rejected,
        "left_out": not left_out & names and left_out <= rejected,
        "loads": {run["name"] for run in result["loads"]["runs"]} <= names,
        "cost": "cost" not in result or {row["name"] for row in result["cost"]["calls"]} == names,
        "by_class": set(result["by_class"]["variants"]) <= names,
        "branches": {row[key] for row in result.get("branches", []) for key in ("name", "reference")} <= names,
        "unmet": not set(result["unmet"]) & set(result["winners"]),
        "targets_left_out": set(result.get("targets_left_out", {}))
        <= {target for target, nearest in result["unmet"].items() if not nearest},
        "decisions": {(f"winner of {target}", name) for target, name in winners} <= chosen,
        "verdict": verdict["winner"] in result["winners"].values() if verdict["met"] else not winners,
        "streams": set(result["streams"]) <= set(result["bundles"]),
        "devices": not devices or devices["slowest"] in ({each["host"] for each in devices["devices"]} or {""}),
        "bundles": {(target, bundle["variant"]) for target, bundle in result["bundles"].items()} == winners,
        "stages": set(result["stages"]) | {"bundle"}
        in ({"origin", *STAGES}, {"origin", *STAGES} - set(TRAINING_STAGES))
        and ("bundle" in result["stages"]) == bool(result["bundles"]),
    }
    if not all(is_consistent.values()):
        raise ValueError(
            f"contradicts the rest: {', '.join(part for part, holds in is_consistent.items() if not holds)}"
        )
    return result
