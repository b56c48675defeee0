"""Fields that the rows of several stages share."""

from __future__ import annotations

from typing import TypedDict


class DropFields(TypedDict):
    """The drop on validation with its bound: `core.tasks.accuracy_drop.Drop` as plain fields."""

    drop_pp: float
    bound_pp: float
    confidence: float
    lost: int
    gained: int
    samples: int
    least_pp: float


class MaybeDropFields(TypedDict):
    """The same of something that may not have been made; None where it was not."""

    drop_pp: float | None
    bound_pp: float | None
    confidence: float | None
    lost: int | None
    gained: int | None
    samples: int | None
    least_pp: float | None


class FileTimes(TypedDict):
    """A converted file that was timed, on one target; sizes in bytes, zipped at level 9."""

    target: str
    precision: str
    bytes: int
    zipped_bytes: int
    p50_ms: float
    low_ms: float
    high_ms: float


class BesideReference(TypedDict):
    """A variant's p50 over that of a reference, `name`, in the same rounds; `limit` is the largest ratio allowed."""

    name: str
    limit: float
    ratio: float
    ratio_low: float
    ratio_high: float
