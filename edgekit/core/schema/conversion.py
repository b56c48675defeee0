"""Records of the conversion: boundaries, files, and redundant operators."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from edgekit.core.schema.record import Record
from edgekit.core.schema.variants import LeftOutVariant, RedundantOp

BoundaryAgreement = TypedDict(
    "BoundaryAgreement",
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
"""A boundary: a converted file compared with the step before it, which is the network or the target's float file.

Both answer the same samples (`convert.check_samples`). `layers_unseen` says why layers were not compared.

`conditioning` is present if the tolerance was widened because the network amplifies rounding errors. It says how much
the network's own outputs change with the rounding, for example between float64 and float32.
"""


class VariantName(Record):
    """The identity of a variant."""

    name: str
    model: str
    precision: str
    target: str


class NotOfferedVariant(VariantName):
    """A variant that its target does not offer."""

    reason: str


class RedundantOperator(Record):
    """An operator that computes nothing.

    `compiled` is true if the operator is not in the file but in the graph that the interpreter compiled from it.
    """

    kind: RedundantOp
    operator: str
    where: str
    moved_bytes: int
    compiled: bool


class ConvertedVariant(VariantName):
    """A converted file with every boundary that was checked.

    `folding` says in words whether preprocessing steps were folded into the file, and `sparse_weights` whether its
    weights were stored as sparse tensors. Either is present only if the config requested it.
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
    head: NotRequired[dict[str, Any]]


class FinalBoundary(BoundaryAgreement):
    """The last boundary of a variant, with the variant's name."""

    name: str
    target: str
    precision: str
    bytes: int


class ConvertMetrics(Record):
    """The figures that the stage records for display.

    The keys of the dictionaries are names of variants; those of `targets_left_out` are targets.
    """

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
