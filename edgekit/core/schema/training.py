"""Records of training and of the choice between candidates. `distill` writes them, and reports show them."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record, Sha256


class TrainedWeights(Record):
    """Weights of a package, a file or a hub from which a network started.

    The licence is empty if it is unknown.
    """

    name: Annotated[str, Field(description="the package, the file or the repository")]
    sha256: Annotated[Sha256, Field(description="of the file")]
    licence: Annotated[str, Field(description="SPDX identifier or name; empty if unknown")]


class CrossValidation(Record):
    """The accuracy of the baseline by k-fold cross-validation over train and validation, with its interval."""

    folds: Annotated[int, Field(ge=2, description="number of folds, each of which tests one training")]
    samples: Annotated[int, Field(ge=2, description="number of samples in all folds")]
    accuracy: Annotated[float, Field(le=1, description="over the answers of all trainings, a fraction")]
    confidence: Annotated[float, Field(description="confidence of the interval, a fraction")]
    low: Annotated[float, Field(le=1, description="lower end of the interval")]
    high: Annotated[float, Field(le=1, description="upper end of the interval")]


class Epoch(Record):
    """One epoch of a training."""

    epoch: int
    learning_rate: float
    train_loss: float
    validation_accuracy: float
    validation_loss: float


class FileTimes(Record):
    """The latency and sizes of a converted file on one target.

    Sizes are in bytes; the compressed size is at level 9.
    """

    target: str
    precision: str
    bytes: int
    zipped_bytes: int
    p50_ms: float
    low_ms: float
    high_ms: float


class TimedFile(FileTimes):
    """The latency of a converted file of a network that was timed before training."""

    model: str


class FailedFile(Record):
    """A file of a network that was to be timed before training, but could not be converted."""

    model: str
    target: str
    precision: str
    reason: str


class CandidateRow(Record):
    """A candidate for the student. Figures are None if it was not trained; keys of `bytes` are target-precision."""

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
    """A candidate with its latencies."""

    best: TimedFile | None
    timed: list[TimedFile]
    left_out: list[FailedFile]


class CandidateNames(Record):
    """Names of the candidates whose latency and size are within the budget, and of those that are trained."""

    in_time: list[str]
    trained: list[str]


class ShortlistRow(Record):
    """The candidates that the run chose (`measured`), the choice by today's latencies, and the limits that applied.

    The two choices differ only if the decision of an earlier run was replayed. `limits` describes the limits in words.
    It is present if `latency_p50_ms` and `size_bytes` alone do not express them. `beside` lists the references of
    relative limits.
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
    """One timed file with its network: a point in the figure."""

    name: str
    builder: str
    macs: int
    kept: bool


class StudentRow(Record):
    """A student, compared with the baseline and, if there is one, with the student trained on labels alone."""

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
