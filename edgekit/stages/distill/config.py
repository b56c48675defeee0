"""Options of the distill stage."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field, field_validator, model_serializer, model_validator

from edgekit.core.config import (
    TARGETS,
    Budget,
    Builder,
    NetworkConfig,
    Pretrained,
    StrictModel,
    Target,
    TrainingStageConfig,
    TrainOptions,
    format_arguments,
)
from edgekit.core.errors import ConfigError
from edgekit.core.paths import PathText
from edgekit.core.tasks import Task
from edgekit.training import augmentations, losses
from edgekit.training.losses import LossOptions
from edgekit.training.teachers import model_file
from edgekit.training.teachers.config import checked_sha256

LIBRARIES = (
    *("numpy", "torch", "safetensors", *model_file.LIBRARIES),
    *(
        "ai-edge-quantizer",
        "litert-converter",
        "litert-torch",
        "nncf",
        "onnx",
        "onnxscript",
    ),  # candidates are converted
)
BASELINE = "baseline"
CANDIDATE_OPTIONS = (
    *("candidates", "candidate_epochs", "most_trained"),
    *("rounds", "calls_per_round", "timeout_s", "budget", "targets"),
)
"""Options that have no effect if the config names one student."""


class TeacherConfig(StrictModel):
    """A possible teacher: the baseline (`baseline: true`), a network to train (`builder`), or a model file (`path`).

    For a file, only the name, the preprocessing steps and the SHA-256 are recorded, not the folder.
    """

    baseline: bool = Field(False, description="whether the baseline is a teacher")
    builder: Builder | None = Field(
        None, description="function that returns a network to train here, as package.module:function"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the builder")
    training: TrainOptions | None = Field(None, description="options of its training; none: those of the student")
    pretrained: Pretrained | None = Field(None, description="trained weights from which a network to train starts")
    path: PathText | None = Field(None, description="path of a .tflite, .onnx, .xml (OpenVINO), .keras or .h5 file")
    preprocess: list[dict[str, Any]] = Field(
        default_factory=list, description="steps from a raw sample to the input of the file"
    )
    sha256: str | None = Field(None, description="SHA-256 of the file; a file with another digest is refused")

    @model_validator(mode="before")
    @classmethod
    def _one_of_three(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        sources = [name for name in ("baseline", "builder", "path") if values.get(name)]
        if len(sources) != 1:
            raise ValueError(
                f"names {' and '.join(sources) or 'no teacher'}; give one of baseline: true, builder, path"
            )
        for other, owner in (
            ("kwargs", "builder"),
            ("training", "builder"),
            ("pretrained", "builder"),
            ("preprocess", "path"),
            ("sha256", "path"),
        ):
            if values.get(other) and owner != sources[0]:
                raise ValueError(f"{other} belongs to a teacher with {owner}, but this one has {sources[0]}")
        return {**values, "sha256": checked_sha256(values)} if isinstance(values.get("path"), str) else values

    @model_validator(mode="after")
    def _known_augmentations(self) -> TeacherConfig:
        try:
            augmentations.parse_all(self.training.augmentations if self.training else ())
        except ConfigError as error:
            raise ValueError(f"training.{error}") from None
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, plain: Any) -> dict[str, Any]:
        """Leave out the options that were not set, and all of `path` except the file's name."""
        values = {name: value for name, value in plain(self).items() if value}
        return {**values, "path": PurePath(self.path).name} if self.path else values

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The name of the teacher in tables."""
        if self.builder is None:
            return PurePath(self.path).name if self.path else BASELINE
        return f"{self.builder.partition(':')[2]}({format_arguments(self.kwargs)})"


class DistillConfig(TrainingStageConfig):
    """Options of the distill stage: the student, its teachers, and the losses to compare."""

    student: NetworkConfig | None = Field(
        None, description="the small network to train; none: the best of the candidates"
    )
    candidates: list[NetworkConfig] = Field(
        default_factory=list,
        description="networks from which the student is chosen; all are timed before any is trained",
    )
    candidate_epochs: int = Field(
        0, ge=0, le=10_000, description="training epochs of each candidate before the choice; 0: as many as `epochs`"
    )
    most_trained: int = Field(
        0, ge=0, le=100, description="largest number of candidates to train, the fastest first; 0: all"
    )
    rounds: int = Field(
        20, ge=10, le=10_000, description="rounds of timing; each times every candidate once, in rotating order"
    )
    calls_per_round: int = Field(20, ge=5, le=100_000, description="timed calls of each candidate's file in a round")
    timeout_s: float = Field(
        300.0, gt=0, le=86_400, description="time limit for converting a candidate to one target, seconds"
    )
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    targets: list[Target] = Field(default_factory=lambda: list(TARGETS), min_length=1)
    task: Task = "classification"
    teachers: list[TeacherConfig] = Field(
        default_factory=lambda: [TeacherConfig.model_validate({"baseline": True})],
        min_length=1,
        description="possible teachers; the one that is most accurate on validation is used",
    )
    ensemble: Literal["none", "logits", "probabilities"] = Field(
        "none",
        description="whether all teachers teach together, with the mean of their logits or of their probabilities",
    )
    losses: list[dict[str, Any]] = Field(
        default_factory=list,
        description="losses to compare, each by training a student; none: only soft targets",
    )
    lone_student: bool = Field(
        True,
        description="whether a student is also trained with the labels alone, to show what the teacher contributes",
    )
    stop_losses_after: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the epochs after which a loss that is significantly worse than the best one is stopped; "
        "0: never",
    )
    temperature: float = Field(
        4.0, ge=0.1, le=100, description="temperature of the soft targets, for both teacher and student"
    )
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels have weight 1 − alpha")

    @field_validator("losses")
    @classmethod
    def _none_twice(cls, sections: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [section.get("loss") for section in sections]
        if duplicates := sorted({str(name) for name in names if names.count(name) > 1}):
            raise ValueError(f"names {', '.join(duplicates)} twice; compare one setting of each loss in a run")
        return sections

    @field_validator("candidates")
    @classmethod
    def _no_candidate_twice(cls, candidates: list[NetworkConfig]) -> list[NetworkConfig]:
        titles = [candidate.title for candidate in candidates]
        if duplicates := sorted({title for title in titles if titles.count(title) > 1}):
            raise ValueError(f"names {', '.join(duplicates)} twice; name each network once")
        return candidates

    @model_validator(mode="after")
    def _one_way_to_a_student(self) -> DistillConfig:
        if self.student is None and not self.candidates:
            raise ValueError("names neither student nor candidates; give the one network, or those to choose from")
        if self.student is not None and self.candidates:
            raise ValueError("names both student and candidates; leave one of them out")
        return self

    @model_serializer(mode="wrap")
    def _without_unused_options(self, plain: Any) -> dict[str, Any]:
        """Leave out options without effect, so that the student is not trained again when they change."""
        values: dict[str, Any] = plain(self)
        if self.ensemble == "none":
            del values["ensemble"]
        if not self.candidates:
            return {name: value for name, value in values.items() if name not in CANDIDATE_OPTIONS}
        limits = {name: limit for name, limit in values["budget"].items() if not name.startswith("accuracy_")}
        return {**{name: value for name, value in values.items() if name != "student"}, "budget": limits}

    def check_consistency(self) -> None:
        """Raise ConfigError for a loss that is unknown or that the teachers do not support."""
        loss_options = self.loss_options()
        for options in loss_options:
            if not losses.supports_task(options, self.task):
                raise ConfigError(
                    f"task and distill.losses disagree: {options.loss} compares the scores of classes, but task "
                    f"is {self.task}; use soft_targets or hints"
                )
        if self.ensemble != "none":
            self._check_ensemble()
        if any(teacher.path for teacher in self.teachers):
            model_file.check_task("distill.teachers.path", self.task)
        if all(teacher.path for teacher in self.teachers):
            for options in loss_options:
                if losses.needs_features(options):
                    raise ConfigError(
                        f"distill.losses and distill.teachers disagree: {options.loss} compares feature maps, and a "
                        "model file gives only its outputs; add a PyTorch teacher or leave that loss out"
                    )

    def _check_ensemble(self) -> None:
        where = f"distill.ensemble: got {self.ensemble}, and"
        if len(self.teachers) < 2:
            raise ConfigError(f"{where} there is one teacher; add another to distill.teachers, or leave ensemble out")
        if files := [teacher.name for teacher in self.teachers if teacher.path]:
            raise ConfigError(
                f"{where} {files[0]} is a file; only PyTorch networks teach together: leave that file or ensemble out"
            )
        if self.ensemble == "probabilities" and self.task not in ("classification", "multi_label"):
            raise ConfigError(f"{where} task is {self.task}, whose outputs are not probabilities; write logits")

    def loss_options(self) -> list[LossOptions]:
        """Return the options of all losses. Soft targets inherit `temperature` and `alpha` from the stage."""
        own = {"loss": "soft_targets", "temperature": self.temperature, "alpha": self.alpha}
        return [losses.parse({**own, **section} if section.get("loss") == own["loss"] else section)
                for section in self.losses or [own]]  # fmt: skip
