"""The sections of a config that all stages share, and errors that tell the user what to write instead.

The options of a single stage are in its package, for example `edgekit.stages.prune.PruneConfig`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_serializer, model_validator
from pydantic_core import ErrorDetails

from edgekit.core.budget import Budget as Budget
from edgekit.core.errors import ConfigError
from edgekit.core.pretrained import Pretrained as Pretrained
from edgekit.core.strict import TARGETS as TARGETS
from edgekit.core.strict import StrictModel as StrictModel
from edgekit.core.strict import Target as Target

STAGES = ("profile", "distill", "prune", "quantize", "convert", "benchmark", "bundle")
TRAINING_STAGES = ("distill", "prune", "quantize")
"""Stages that train a student. A run whose config has no `distill` section has none of them."""

BUILDER_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
CLASS_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
VERSION_PATTERN = r"^\d+\.\d+\.\d+$"
PATTERN_ADVICE = {
    BUILDER_PATTERN: "write package.module:function, for example nets:make",
    f"^$|{BUILDER_PATTERN}": "write package.module:function, for example prepare:samples, or nothing",
    NAME_PATTERN: "write 1 to 64 small letters, digits, - and _, a letter or a digit first, for example my-run",
    f"^$|{CLASS_NAME_PATTERN}": "write a class of hosts.yaml, for example pi4, or nothing",
    VERSION_PATTERN: "write three numbers with dots between them, for example 1.0.0",
}
"""For each pattern, an explanation of what to write, so that nobody has to read a regular expression."""
Builder = Annotated[str, Field(pattern=BUILDER_PATTERN)]


def format_arguments(kwargs: Mapping[str, Any]) -> str:
    """Return `depth=8, width=4`, sorted by name, because the text is recorded and must not depend on the order."""
    return ", ".join(
        f"{name}={json.dumps(value, sort_keys=True) if isinstance(value, dict) else value}"
        for name, value in sorted(kwargs.items())
    )


class NetworkConfig(StrictModel):
    """A network: the function that builds it, and its arguments."""

    builder: Builder = Field(description="function that returns a torch.nn.Module, as package.module:function")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the builder")
    pretrained: Pretrained | None = Field(None, description="trained weights to start from")

    @model_serializer(mode="wrap")
    def _without_none(self, plain: Any) -> dict[str, Any]:
        """Leave out `pretrained` if there is none, so that the digests of other networks stay the same."""
        return {name: value for name, value in plain(self).items() if value is not None}

    @property
    def title(self) -> str:
        """The network's name in tables, such as `resnet8(width=12)`."""
        return self.builder.partition(":")[2] + (f"({format_arguments(self.kwargs)})" if self.kwargs else "")


class ModelConfig(StrictModel):
    """The user's network: a function that builds it and the source of its weights, or a model file."""

    builder: Builder | None = Field(
        None, description="function that returns a torch.nn.Module, as package.module:function"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the builder")
    weights: str | None = Field(
        None, description="path of a .safetensors file; without it, the profile stage trains the network"
    )
    pretrained: Pretrained | None = Field(
        None, description="trained weights of another data set to start from; the last layer is new"
    )
    source: str | None = Field(None, description="path of a .pt2, .keras, .h5, .onnx, OpenVINO .xml or .tflite file")
    sha256: str | None = Field(None, description="SHA-256 of the source; a file with a different SHA-256 is refused")
    head: str | None = Field(
        None, description="detector whose outputs a source has, such as yolov8, if the file and the labels do not say"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> ModelConfig:
        if self.builder is None and self.source is None:
            raise ValueError("names no model; give builder: package.module:function, or source: a model file")
        if self.builder is not None and self.source is not None:
            raise ValueError("names both builder and source; leave one of them out")
        if self.weights and self.pretrained:
            raise ValueError(
                "names both weights and pretrained; give weights for a network that is ready to use, or pretrained for "
                "one to train further"
            )
        owners = {
            "kwargs": "builder", "weights": "builder", "pretrained": "builder", "sha256": "source", "head": "source",
        }  # fmt: skip
        for name, owner in owners.items():
            if getattr(self, name) and getattr(self, owner) is None:
                raise ValueError(f"{name} belongs to a model with {owner}; leave it out")
        return self


LARGEST_BATCH = 8192


class TrainOptions(StrictModel):
    """Options of the training loop, `edgekit.training.fit.fit`."""

    epochs: int = Field(20, ge=1, le=10_000, description="passes over the train split")
    batch_size: int = Field(64, ge=2, le=LARGEST_BATCH, description="samples in a batch")
    optimizer: Literal["sgd", "adamw", "rmsprop"] = Field(
        "sgd", description="optimizer: SGD with Nesterov momentum, AdamW or RMSprop"
    )
    optimizer_options: dict[str, Any] = Field(
        default_factory=dict, description="further arguments of the optimizer's class in torch.optim, by torch's names"
    )
    learning_rate: float = Field(
        0.05, gt=0, le=10, description="peak learning rate; the default suits sgd, while adamw needs about 0.001"
    )
    weight_decay: float = Field(5e-4, ge=0, le=1, description="L2 penalty on the weights; decoupled with adamw")
    clip_norm: float = Field(0.0, ge=0, description="largest norm of the gradient, which is scaled down to it; 0: any")
    accumulate_batches: int = Field(
        1, ge=1, description="batches for each optimizer step, which uses the mean of their gradients"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a label that all classes get equally; only for classification"
    )
    augment: Literal["none", "shift", "shift_flip"] = Field(
        "shift", description="random changes of train images: shifts, or shifts and mirror images"
    )
    patience_epochs: int = Field(
        0, ge=0, description="epochs without a better validation after which training stops; 0: never"
    )
    schedule: Literal["cosine", "linear", "constant"] = Field(
        "cosine", description="how the learning rate falls after its warm-up"
    )
    warmup_share: float = Field(
        0.1, ge=0, lt=1, description="share of the steps over which the learning rate rises; 0: it begins at its peak"
    )
    ema_decay: float = Field(
        0.0, ge=0, lt=1, description="decay of a moving average of the weights, which is validated and kept; 0: none"
    )
    augmentations: list[dict[str, Any]] = Field(
        default_factory=list,
        description="further random changes of train samples, in this order, each with its kind",
    )


class TrainingOptions(StrictModel):
    """Options of every training of a run: the top-level section `training`."""

    shares: int = Field(
        1, ge=1, le=64, description="parts that a batch is divided into; as many processes can train side by side"
    )
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        "float32",
        description="number format in which a network computes while it is trained; auto: bfloat16 where the "
        "processor has it",
    )


class StageConfig(StrictModel):
    """Options that every stage has in addition to its own. They are filled in from the top level of the config."""

    seed: int = Field(0, ge=0, lt=2**31, description="seed of every random choice")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="device of the training")
    threads: int = Field(0, ge=0, le=256, description="threads for training; 0: all cores")

    def check_consistency(self) -> None:
        """Check before the run what the declarations of the options cannot express. Stages override this method.

        Raises ConfigError if the check fails.
        """


class TrainingStageConfig(StageConfig, TrainOptions):
    """Options of every stage that trains.

    `training` comes from the top level of the config and is part of the cache key.
    """

    training: TrainingOptions = Field(default_factory=lambda: TrainingOptions.model_validate({}))

    @model_validator(mode="after")
    def _shares_of_two(self) -> Self:
        if self.training.shares > 1 and self.batch_size < 2 * self.training.shares:
            raise ValueError(
                f"batch_size ({self.batch_size}) and training.shares ({self.training.shares}) disagree: each shard "
                f"needs at least 2 samples; raise batch_size or lower training.shares"
            )
        return self


TuneWith = Literal["distilled", "labels"]
"""The loss that fine-tuning minimises.

`distilled`: the loss that distillation selected, which may or may not involve a teacher. `labels`: the loss on the
labels alone.
"""


class TuningStageConfig(TrainingStageConfig):
    """Options of every stage that fine-tunes the student."""

    tune_with: TuneWith = Field(
        "distilled", description="what fine-tuning minimises: what distill kept, or labels alone whatever that was"
    )


SHARED_FIELDS = (
    "seed",
    "device",
    "threads",
    "training",
    "budget",
    "targets",
    "targets_named",
    "name",
    "version",
    "task",
)
"""Top-level keys that are copied into the config of every stage that declares a field with that name."""


SECRET_NAME = re.compile(
    r"secret|passw(or)?d|passphrase|credential|api_?key|(private|access|signing)_?key|(^|_)(token|pwd|auth|bearer)$"
)
"""Matches names that look like the name of a secret. It does not match `max_tokens` or `author`."""


def refuse_secrets(values: Any, where: str = "") -> None:
    """Raise ConfigError if a key at any depth looks like a secret, because notebooks and bundles record parameters."""
    if isinstance(values, list):
        for value in values:
            refuse_secrets(value, where)
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        if SECRET_NAME.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).replace("-", "_").lower()):
            raise ConfigError(
                f"{where}{key}: looks like a secret, and a parameter is written into the executed notebook and into "
                "the bundle's record; leave it out and let your own code read it from the environment"
            )
        refuse_secrets(value, f"{where}{key}.")


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar of the known words, or None if none is similar enough."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.55)), None)


def suggest(word: str, known: Sequence[str]) -> str:
    """Return `'did you mean "ratio"?'`, or a list of the allowed words if none of them is similar."""
    if match := closest_match(word, known):
        return f'did you mean "{match}"?'
    return "allowed here: " + ", ".join(sorted(known)) if known else "nothing is allowed here"


def shortened_repr(value: object, limit: int = 120) -> str:
    """Return the repr of a value for a message. A long one is cut, and its length is stated."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def validate(model: type[BaseModel], values: dict[str, Any], where: str) -> Any:
    """Check `values` against a pydantic model and return the model's instance.

    Parameters
    ----------
    model
        The pydantic model of the section.
    values
        The section as the user wrote it.
    where
        The dotted name of the section, which messages begin with.

    Raises
    ------
    ConfigError
        The values have faults. The message has one line per fault, which names the key as the user wrote it.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(model, fault, where) for fault in error.errors())) from None


def _explain(model: type[BaseModel], fault: ErrorDetails, where: str) -> str:
    path = [str(part) for part in fault["loc"]]
    key = ".".join([where, *path] if where else path)
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key, {suggest(path[-1], _fields_at(model, path[:-1]))}"
    if fault["type"] == "missing":
        return f"{key}: missing; it has no default"
    if fault["type"] == "value_error":
        return f"{key or 'config'}: {fault['ctx']['error']}"
    advice = PATTERN_ADVICE.get(fault["ctx"]["pattern"]) if fault["type"] == "string_pattern_mismatch" else None
    return f"{key}: got {shortened_repr(fault['input'])}; {advice or fault['msg'][0].lower() + fault['msg'][1:]}"


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    follows_dict = False
    for part in path:
        if follows_dict or part.isdigit():  # the key of a dict or the index of a list does not lead to another model
            follows_dict = False
            continue
        field = model.model_fields.get(part)
        follows_dict = field is not None and get_origin(field.annotation) is dict
        nested = _model_in(field.annotation) if field else None
        if nested is None:
            return []
        model = nested
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation contains, even if it is optional or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def stages_to_run(sections: Any) -> tuple[str, ...]:
    """Return all stages. If the config has no `distill` section, the stages that train a student are left out.

    Raises
    ------
    ConfigError
        A stage that needs a student is configured, but `distill` is not.
    """
    if sections.distill:
        return STAGES
    for stage in TRAINING_STAGES[1:]:
        if getattr(sections, stage) not in ({}, {"enabled": False}):
            raise ConfigError(
                f"{stage}: is configured, but distill is not; set distill.student or distill.candidates, because "
                f"only a student is pruned and fine-tuned, or leave {stage} out"
            )
    return tuple(stage for stage in STAGES if stage not in TRAINING_STAGES)
