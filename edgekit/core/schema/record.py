"""The base class of every record of result.json, and types of numbers and texts that are restricted to a range.

A record is a `TypedDict`: a stage writes it as a plain dictionary, mypy checks its keys, and `json` stores it without
conversion. Each field is declared once, with its type, range and meaning. Pydantic derives the check and the JSON
schema from the same declarations when they are needed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic cannot read typing's before Python 3.12


def _with_time_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"got {text}, which has no time zone; write it as in 2026-01-31T12:00:00+00:00")
    return text


Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}), AfterValidator(_with_time_zone)]
"""ISO 8601 with a time zone."""


@with_config(ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class Record(TypedDict):
    """A record without unknown keys, silent conversions, NaN or infinity."""
