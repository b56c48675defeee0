"""Rows of the conversion: boundaries, files, and what the converters left behind."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from edgekit.core.schema.record import Record
from edgekit.core.schema.variants import LeftOutVariant, RedundantOp

BoundaryAgreement = TypedDict(
    "Agreement",
    {
        "from": str,
        "to": str,
        "samples": int,
        "max_abs": float,
        "snr_db": float,
        "cosine": float,
        "worst_cosine": float,
        "top1_agreement": float,
        "ok": bool,
        "layers_unseen": NotRequired[str],
        "conditioning": NotRequired[str],
    },
)
"""A file compared with the step before, on the check samples; `layers_unseen`: why layers were not compared.

`conditioning` stands where the network amplifies rounding and the tolerance follows: how near it is to itself.
"""


class VariantName(Record):
    """Which variant."""

    name: str
    model: str
    precision: str
    target: str


class NotOfferedVariant(VariantName):
    """A variant that its target does not have."""

    reason: str


class RedundantOperator(Record):
    """An operator that computes nothing; `compiled`: in what the interpreter compiled here, not in the file."""

    kind: RedundantOp
    operator: str
    where: str
    moved_bytes: int
    compiled: bool


class ConvertedVariant(VariantName):
    """A converted file, and every boundary that it crossed.

    `folding` says what became of the preprocess steps, where they were to be folded into the file, and `sparse_weights`
    what became of its zeros, where they were to be stored as such.
    """

    method: str
    quantization: dict[str, Any] | None
    files: list[str]
    bytes: int
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    float_ops: list[str]
    not_offered: list[str]
    debris: list[RedundantOperator]
    boundaries: list[BoundaryAgreement]
    folding: NotRequired[str]
    sparse_weights: NotRequired[str]


class FinalBoundary(BoundaryAgreement):
    """The last boundary of a variant, with its name."""

    name: str
    target: str
    precision: str
    bytes: int


class ConvertMetrics(Record):
    """What the stage records to be shown; by variant where a dictionary."""

    variants: int
    check_samples: int
    lowest_top1_agreement: float
    lowest_snr_db: float
    bytes: dict[str, int]
    float_ops: dict[str, list[str]]
    debris: dict[str, list[RedundantOperator]]
    left_out: list[LeftOutVariant]
    targets_left_out: NotRequired[dict[str, str]]
    notes: list[str]
