"""Rows of the trainings and of the choice between candidates: what `distill` records, and reports show."""

from __future__ import annotations

from typing import Any, NotRequired

from edgekit.core.schema.record import Record


class Epoch(Record):
    """One epoch of a training."""

    epoch: int
    learning_rate: float
    train_loss: float
    validation_accuracy: float
    validation_loss: float


class FileTimes(Record):
    """A converted file that was timed, on one target; sizes in bytes, zipped at level 9."""

    target: str
    precision: str
    bytes: int
    zipped_bytes: int
    p50_ms: float
    low_ms: float
    high_ms: float


class TimedFile(FileTimes):
    """One converted file of a network that was timed before it was trained."""

    model: str


class FailedFile(Record):
    """A file of such a network that could not be made."""

    model: str
    target: str
    precision: str
    reason: str


class CandidateRow(Record):
    """A candidate for the student; figures are None for one that was not trained, `bytes` are by target-precision."""

    name: str
    builder: str
    parameters: int
    macs: int
    bytes: dict[str, int]
    in_time: bool
    validation_accuracy: float | None
    drop_pp: float | None
    lost: int | None
    gained: int | None
    samples: int | None
    kept: bool
    reason: str


class ShownCandidate(CandidateRow):
    """The same with what a clock said of it."""

    best: TimedFile | None
    timed: list[TimedFile]
    left_out: list[FailedFile]


class CandidateNames(Record):
    """Names of the candidates within the budget, and of those that are trained."""

    in_time: list[str]
    trained: list[str]


class ShortlistRow(Record):
    """What was followed beside what today's clock says, and what the candidates were compared with.

    `limits` are in words, where two numbers do not say them; `beside` are the references of relative ones.
    """

    measured: CandidateNames
    today: CandidateNames
    replayed: bool
    no_student_for: list[str]
    latency_p50_ms: float | None
    size_bytes: int | None
    limits: NotRequired[list[str]]
    beside: NotRequired[list[dict[str, Any]]]


class CandidatePoint(TimedFile):
    """One timed file with its network: a point of the picture."""

    name: str
    builder: str
    macs: int
    kept: bool


class StudentRow(Record):
    """A student, compared with the one that was taught by labels alone, where there is one, and with the baseline."""

    name: str
    options: dict[str, Any] | None
    validation_accuracy: float
    gain_pp: float | None
    gap_closed: float | None
    kept: bool
    reason: str
    drop_pp: float
    lost: int
    gained: int
    samples: int
