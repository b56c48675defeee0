"""result.json as a whole; `schema.py` says what each field means."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from edgekit.core.rows.by_class import ByClass
from edgekit.core.rows.conditions import Conditions
from edgekit.core.rows.cost import Cost
from edgekit.core.rows.decisions import Choice, Limit, Zeros
from edgekit.core.rows.devices import DeviceClass
from edgekit.core.rows.loads import Loads
from edgekit.core.rows.streams import Streamed
from edgekit.core.rows.variants import (
    BaselineRow,
    LeftOut,
    Limits,
    Met,
    Missed,
    NearestMiss,
    Rejected,
    Rival,
    SeenValidation,
    VariantRow,
    WaterfallStep,
)
from edgekit.core.tasks import Task


class Stage(TypedDict):
    """The sealed artifact of one stage."""

    digest: str
    key: str
    finished: str
    seconds: float
    cpu_seconds: NotRequired[float]


class Bundle(TypedDict):
    """One file to copy to a device."""

    file: str
    sha256: str
    bytes: int
    variant: str
    commands: list[str]


class Sources(TypedDict):
    """What a result was made from."""

    digest: str
    code: str


class Result(TypedDict):
    """The verdict of a run of edgekit with everything that it rests on, from the run's sealed artifacts."""

    schema: Literal["edgekit/result/2"]
    format: Literal[2]
    edgekit: str
    name: str
    version: str
    config: dict[str, Any]
    task: Task
    data_digest: str
    data_notes: NotRequired[list[str]]
    budget: Limits
    verdict: Met | Missed
    nearest_miss: NearestMiss | None
    winners: dict[str, str]
    unmet: dict[str, NearestMiss | None]
    variants: list[BaselineRow | VariantRow]
    decisions: list[Choice | Limit | Zeros]
    waterfall: list[WaterfallStep]
    rivals: list[Rival]
    loads: Loads
    cost: NotRequired[Cost]
    seen_validation: SeenValidation | None
    others_seen_validation: NotRequired[list[SeenValidation]]
    by_class: ByClass
    devices: NotRequired[DeviceClass]
    streams: dict[str, Streamed]
    rejected: list[Rejected]
    left_out: list[LeftOut]
    targets_left_out: NotRequired[dict[str, str]]
    conditions: Conditions
    stages: dict[str, Stage]
    bundles: dict[str, Bundle]
    sources: Sources
