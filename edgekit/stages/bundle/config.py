"""Options of the bundle stage."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from edgekit.core.config import Budget, StageConfig, StrictModel
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task
from edgekit.runner.bundle import smoothing_rules
from edgekit.runner.errors import InputError

LIBRARIES = ("numpy", "ai-edge-litert", "openvino", "onnxruntime")
WINDOWS = (3, 5, 9, 15)
LIMITS = ((0.6, 0.4), (0.7, 0.3), (0.8, 0.2), (0.9, 0.1))
"""Where hysteresis enters and leaves: probabilities."""
ANOMALY_LIMITS = ((1.0, 0.8), (1.2, 1.0), (1.5, 1.0), (2.0, 1.0))
"""The same in multiples of the threshold."""


class Smoothing(StrictModel):
    """How answers to a stream are smoothed: a method with its options, or what to choose among."""

    method: Literal["majority", "mean", "hysteresis"] | None = Field(
        None, description="the method, where nothing is to be chosen"
    )
    windows: int | None = Field(None, description="windows that vote, or that the mean is of")
    enter: float | None = Field(None, description="from where on hysteresis says something")
    leave: float | None = Field(None, description="below which hysteresis does not say it any more")
    choose: Literal["auto"] | list[dict[str, Any]] | None = Field(
        None, description="methods with their options, or auto: the best on validation is kept, none of them included"
    )
    detection_drop_pp: float = Field(
        0.0, ge=0, le=100, description="events that what is chosen may lose beside no smoothing, percentage points"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Smoothing:
        if (self.method is None) == (self.choose is None):
            raise ValueError("name either method, with its options, or choose: auto, or a list of methods")
        if self.method is None and self._options():
            raise ValueError(f"{', '.join(self._options())} belong to a method; write them into the list of choose")
        if self.method is not None and self.detection_drop_pp:
            raise ValueError(
                f"detection_drop_pp: got {self.detection_drop_pp:g}, which belongs to choose: a method that is named "
                "is kept whatever it detects; leave one of them out"
            )
        if self.choose == []:
            raise ValueError("choose is empty; write auto, or a list of methods")
        return self

    def _options(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("windows", "enter", "leave")}
        return {name: value for name, value in values.items() if value is not None}

    def candidates(self, task: Task) -> list[dict[str, Any]]:
        """What a manifest may declare, in the order that decides between equals: little smoothing first."""
        if isinstance(self.choose, list):
            return self.choose
        if self.choose is None:
            return [{"method": self.method, **self._options()}]
        limits = ANOMALY_LIMITS if task == "anomaly" else LIMITS
        return [
            *({"method": method, "windows": windows} for windows in WINDOWS for method in ("majority", "mean")),
            *({"method": "hysteresis", "enter": enter, "leave": leave} for enter, leave in limits),
        ]


class StreamOptions(StrictModel):
    """How answers to a stream are evaluated on validation."""

    background: str | None = Field(
        None, description="class of what is no event; none: data.background, of an anomaly detection what is normal"
    )
    rows_per_s: float | None = Field(
        None, gt=0, description="rows a second of sensors, so that false alarms are per hour; sounds have their rate"
    )
    tolerance_windows: int | None = Field(
        None, ge=0, description="windows behind an event in which it may still be detected; none: as many as one spans"
    )


class BundleConfig(StageConfig):
    """What the bundles are called and how many recorded answers they carry."""

    name: str = Field("model", description="name of the bundles")
    version: str = Field("1.0.0", description="version of the bundles")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    task: Task = "classification"
    golden_samples: int = Field(16, ge=1, le=1000, description="most validation samples recorded as golden vectors")
    golden_tolerance_float: float = Field(
        0.005, gt=0, le=1, description="allowed difference of an output, as a share of the range of outputs"
    )
    golden_tolerance_int8: float = Field(
        0.05, gt=0, le=1, description="the same for an int8 variant, as a share of the range of outputs"
    )
    false_alarms: float = Field(
        0.01, gt=0, lt=1, description="share of normal validation samples that may be called anomalies"
    )
    smoothing: Smoothing | None = Field(
        None, description="of answers to a stream: a method with its options, or `auto`; none: each window for itself"
    )
    stream: StreamOptions = Field(
        default_factory=lambda: StreamOptions.model_validate({}), description="how answers to a stream are evaluated"
    )

    @field_validator("smoothing", mode="before")
    @classmethod
    def _auto(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "auto":
            raise ValueError(
                f"got {value!r}; write auto, or a method with its options, as {{method: mean, windows: 5}}"
            )
        return {"choose": value} if value == "auto" else value

    def check_consistency(self) -> None:
        """ConfigError for a method that is none, or not for this task."""
        for each in self.smoothing.candidates(self.task) if self.smoothing else ():
            try:
                smoothing_rules.check_smoothing(each, self.task)
            except InputError as error:
                raise ConfigError(f"bundle.{error}") from None
