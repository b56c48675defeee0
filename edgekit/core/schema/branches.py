"""Which outputs of a quantized detector lost its accuracy: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.schema.record import Record, Share

Branch = Literal["boxes", "scores"]


class ReplacedBranch(Record):
    """The accuracy of the quantized detector with some of its outputs taken from the float file."""

    branch: Annotated[Branch, Field(description="the outputs that were taken from the float file")]
    stride_pixels: Annotated[
        int | None, Field(gt=0, description="the only grid whose outputs were taken, by its stride; null: all grids")
    ]
    accuracy: Annotated[Share, Field(description="accuracy of these answers on validation")]


class BranchLosses(Record):
    """A detector in int8 that loses more than the budget, and what its outputs contribute to that."""

    name: Annotated[str, Field(description="name of the variant")]
    reference: Annotated[str, Field(description="the float variant of the same network and target")]
    accuracy: Annotated[Share, Field(description="accuracy of the variant on validation")]
    reference_accuracy: Annotated[Share, Field(description="accuracy of the float variant on validation")]
    lost_by: Annotated[
        Literal["boxes", "scores", "both"],
        Field(
            description="outputs that alone recover at least half of the loss if they come from the float file; both: "
            "each or neither does"
        ),
    ]
    replaced: Annotated[
        list[ReplacedBranch], Field(min_length=2, description="boxes and scores from the float file, then grid by grid")
    ]
