"""The other figure of accuracy that a task may have, as it stands in result.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgekit.core.config import Strict

Share = Annotated[float, Field(ge=0, le=1)]


class SecondAccuracy(Strict):
    """Another figure of accuracy, which stands beside the first and decides nothing."""

    metric: str = Field(description="its name: mAP@0.5:0.95 of a detection")
    validation: Share = Field(description="on the split that decisions are made on")
    test: Share = Field(description="on the split that is read once, for this record")
