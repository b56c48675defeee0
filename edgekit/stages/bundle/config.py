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
HYSTERESIS_THRESHOLDS = ((0.6, 0.4), (0.7, 0.3), (0.8, 0.2), (0.9, 0.1))
"""Pairs of `enter` and `leave` for hysteresis, as probabilities."""
ANOMALY_THRESHOLDS = ((1.0, 0.8), (1.2, 1.0), (1.5, 1.0), (2.0, 1.0))
"""Pairs of `enter` and `leave` for anomaly scores, as multiples of the threshold."""


class Smoothing(StrictModel):
    """How answers to a stream are smoothed: a method with its options, or a choice between several."""

    method: Literal["majority", "mean", "hysteresis"] | None = Field(
        None, description="the method; leave it out if one is to be chosen automatically"
    )
    windows: int | None = Field(None, description="number of windows that majority or mean combine")
    enter: float | None = Field(
        None,
        description="probability, or multiple of the anomaly threshold, from which hysteresis reports an event",
    )
    leave: float | None = Field(
        None, description="probability, or multiple of the anomaly threshold, below which hysteresis ends the event"
    )
    choose: Literal["auto"] | list[dict[str, Any]] | None = Field(
        None,
        description="methods with their options, or auto; the best on validation is chosen, which may be no smoothing",
    )
    detection_drop_pp: float = Field(
        0.0,
        ge=0,
        le=100,
        description="share of all events that may go undetected because of smoothing, percentage points",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Smoothing:
        if (self.method is None) == (self.choose is None):
            raise ValueError("give either method with its options, or choose: auto or a list of methods")
        if self.method is None and self._options():
            raise ValueError(f"{', '.join(self._options())} belong to a method; write them into the list under choose")
        if self.method is not None and self.detection_drop_pp:
            raise ValueError(
                f"detection_drop_pp: got {self.detection_drop_pp:g}, which is only used with choose, because a method "
                "that is named is used whatever it detects; leave one of them out"
            )
        if self.choose == []:
            raise ValueError("choose is empty; write auto, or a list of methods")
        return self

    def _options(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("windows", "enter", "leave")}
        return {name: value for name, value in values.items() if value is not None}

    def candidates(self, task: Task) -> list[dict[str, Any]]:
        """Return the smoothings to choose from, as a manifest declares them.

        They are ordered from the least to the most smoothing, because the first of several equally good ones wins.
        """
        if isinstance(self.choose, list):
            return self.choose
        if self.choose is None:
            return [{"method": self.method, **self._options()}]
        thresholds = ANOMALY_THRESHOLDS if task == "anomaly" else HYSTERESIS_THRESHOLDS
        return [
            *({"method": method, "windows": windows} for windows in WINDOWS for method in ("majority", "mean")),
            *({"method": "hysteresis", "enter": enter, "leave": leave} for enter, leave in thresholds),
        ]


class StreamOptions(StrictModel):
    """How answers to a stream are evaluated on validation."""

    background: str | None = Field(
        None,
        description="class of the windows without an event; none: data.background, or the normal class of an anomaly "
        "detection",
    )
    rows_per_s: float | None = Field(
        None,
        gt=0,
        description="rows per second of sensor data, so that false alarms are reported per hour; the rate of audio is "
        "known",
    )
    tolerance_windows: int | None = Field(
        None,
        ge=0,
        description="number of windows after an event in which it still counts as detected; none: as many as start "
        "within the length of one window",
    )


class BundleConfig(StageConfig):
    """Options of the bundle stage: the names of the bundles, their golden answers, and smoothing of streams."""

    name: str = Field("model", description="name of the bundles")
    version: str = Field("1.0.0", description="version of the bundles")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    task: Task = "classification"
    golden_samples: int = Field(
        16, ge=1, le=1000, description="largest number of validation samples that are recorded with golden answers"
    )
    golden_tolerance_float: float = Field(
        0.005,
        gt=0,
        le=1,
        description="how far an output may differ from its golden answer, as a share of the range of outputs",
    )
    golden_tolerance_int8: float = Field(
        0.05, gt=0, le=1, description="the same for an int8 variant, as a share of the range of outputs"
    )
    false_alarms: float = Field(
        0.01, gt=0, lt=1, description="share of the normal validation samples that may be classified as anomalies"
    )
    smoothing: Smoothing | None = Field(
        None,
        description="smoothing of the answers to a stream: a method with its options, or `auto`; none: every window "
        "is answered on its own",
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
        """Raise ConfigError if a smoothing method does not exist or does not support the task."""
        for smoothing in self.smoothing.candidates(self.task) if self.smoothing else ():
            try:
                smoothing_rules.check_smoothing(smoothing, self.task)
            except InputError as error:
                raise ConfigError(f"bundle.{error}") from None
