"""What there is to know about a network but its weights."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_serializer, model_validator

from edgekit.core.config import Builder, Strict
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task

FORMAT = 1
SPEC = "model.json"
RAW_OPTIONS = ("range", "sample_rate_hz", "columns", "input_path", "tensors")
INTERPRETERS = {
    "exported": ("torch", "torch"),
    "keras": ("tensorflow", "tensorflow"),
    "onnx": ("onnxruntime", "onnxruntime"),
    "openvino": ("openvino", "openvino"),
    "tflite": ("ai-edge-litert", "litert"),
}
"""By kind of source, the distribution that runs it and what the runner calls it."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Source(Strict):
    """A model that came as a file: its name in the saved folder, and what was found out when it was first opened.

    `probabilities`: its outputs are after a softmax; `sigmoids`: after a sigmoid for each class. `integers`: it is
    quantized already, inside or at its ends. What a call costs is counted in the graph that OpenVINO reads; 0 where it
    cannot.
    """

    kind: Literal["exported", "keras", "onnx", "openvino", "tflite"]
    file: str
    probabilities: bool = False
    sigmoids: bool = False
    integers: bool = False
    parameters: int = 0
    macs: int = 0
    weight_bytes: int = 0


class ModelSpec(Strict):
    """All there is to know about a network but its weights; `input_shape` is (C, H, W), (F,) or (time, channels).

    Of several inputs it is (width,), of the vector that joins them. The network has a `builder`, or came as the file
    that `source` describes. `output_shape` is (num_classes,) where it is None.
    `classes` are the names of its outputs, and of an anomaly detection, whose output is a reconstruction, what it says.
    `reparameterized`: the builder's network was merged by its method of that name (`edgekit.models.reparameterize`).
    """

    builder: Builder | None = None
    source: Source | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)
    input_shape: Annotated[tuple[int, ...], BeforeValidator(_as_tuple)]
    num_classes: int = Field(ge=1)
    task: Task = "classification"
    output_shape: Annotated[tuple[int, ...] | None, BeforeValidator(_as_tuple)] = None
    classes: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
    preprocess: list[dict[str, Any]] = Field(default_factory=list)
    reparameterized: bool = False
    raw: dict[str, Any] = Field(
        description="kind, shape, dtype and range of one raw sample, as in the bundle's manifest"
    )

    @model_serializer(mode="wrap")
    def _without_what_is_not_so(self, plain: Any) -> dict[str, Any]:
        """Without `reparameterized` where it is false: older records and their digests stay."""
        return {name: value for name, value in plain(self).items() if name != "reparameterized" or value}

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if (self.builder is None) == (self.source is None):
            raise ValueError("a network has either a builder or a source")
        if len(self.classes) != self.num_classes:
            raise ValueError(f"num_classes is {self.num_classes}, but {len(self.classes)} classes are named")
        if not {"kind", "shape", "dtype"} <= set(self.raw) <= {"kind", "shape", "dtype", *RAW_OPTIONS}:
            raise ValueError(f"raw wants kind, shape, dtype and maybe {', '.join(RAW_OPTIONS)}, got {sorted(self.raw)}")
        return self

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of what it gives for one sample."""
        return self.output_shape or (self.num_classes,)

    @property
    def tensors(self) -> tuple[dict[str, Any], ...]:
        """Of samples of several, as a manifest's `raw` lists them; none where a sample is one array."""
        return tuple(self.raw.get("tensors") or ())

    @property
    def takes_ids(self) -> bool:
        """Whether its input is token ids, int32, and no float32."""
        return bool(self.raw["dtype"] == "int32")

    @property
    def gives_probabilities(self) -> bool:
        """Whether a softmax stands inside, or a sigmoid for each class, so that none must follow."""
        return self.source is not None and (self.source.probabilities or self.source.sigmoids)

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch sees its layers."""
        return self.source is None or self.source.kind == "exported"

    @property
    def interpreter(self) -> str:
        """What runs it as it is, and that one's version."""
        distribution, name = INTERPRETERS["exported" if self.source is None else self.source.kind]
        return f"{name} {metadata.version(distribution)}"

    @property
    def called(self) -> str:
        """What messages call it."""
        return self.source.file if self.source else str(self.builder)


def read_spec(folder: Path) -> ModelSpec:
    """The `model.json` of `folder`, checked."""
    path = folder / SPEC
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("format") > FORMAT:
            raise ModelError(f"{path}: written by a newer edgekit; update this one")
        return ModelSpec.model_validate(fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise ModelError(f"{path}: not a saved model ({error}); run the stage that made it again") from None
