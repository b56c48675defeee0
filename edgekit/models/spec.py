"""The description of a network: everything except its weights."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_serializer, model_validator

from edgekit.core.config import Builder, Pretrained, StrictModel
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
"""For each kind of source, the Python distribution that runs it, and the name that the runner uses for it."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Source(StrictModel):
    """A model that came as a file: the file's name in the saved folder, and what was detected when it was first opened.

    `probabilities` means that the model ends in a softmax, and `sigmoids` that it ends in a sigmoid for each class.
    `integers` means that it is quantized already, either inside or at its inputs and outputs. `decoding` describes the
    outputs of a detector whose file decodes the boxes itself. If possible, the file is cut before the decoding. If its
    outputs are then not distances and logits, `head` says how they are read (`edgekit.runner.box_heads`). `suppressed`
    means that the detector gives one box for each object. `parameters`, `macs` and `weight_bytes` are counted in the
    graph that OpenVINO reads, and are 0 if OpenVINO cannot read it.
    """

    kind: Literal["exported", "keras", "onnx", "openvino", "tflite"]
    file: str
    probabilities: bool = False
    sigmoids: bool = False
    integers: bool = False
    decoding: str = ""
    suppressed: bool = False
    head: dict[str, Any] | None = None
    parameters: int = 0
    macs: int = 0
    weight_bytes: int = 0

    @model_serializer(mode="wrap")
    def _without_defaults(self, plain: Any) -> dict[str, Any]:
        """Leave out what only detectors have, so that the digests of other models stay the same."""
        optional = ("decoding", "suppressed", "head")
        return {name: value for name, value in plain(self).items() if value or name not in optional}


class ModelSpec(StrictModel):
    """The description of a network: everything except its weights.

    The network either has a `builder` or came as the file that `source` describes. `input_shape` is (C, H, W), (F,) or
    (time, channels), and for several inputs (width,), the size of the vector that joins them. `output_shape` None means
    (num_classes,). `classes` are the names of the outputs; for anomaly detection, whose output is a reconstruction or
    a map of distances, they are the names of its verdicts. `reparameterized` means that the builder's network was
    merged by its method of that name (`edgekit.models.reparameterize`). A new network starts from the weights of
    `pretrained`, if it is given; a saved network has its own.
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
    pretrained: Pretrained | None = None
    raw: dict[str, Any] = Field(
        description="kind, shape, dtype and range of one raw sample, as in the bundle's manifest"
    )

    @model_serializer(mode="wrap")
    def _without_false_fields(self, plain: Any) -> dict[str, Any]:
        """Leave out what is not set, so that older records and their digests stay the same."""
        optional = ("reparameterized", "pretrained")
        return {name: value for name, value in plain(self).items() if value or name not in optional}

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if (self.builder is None) == (self.source is None):
            raise ValueError("a network has either a builder or a source")
        if len(self.classes) != self.num_classes:
            raise ValueError(f"num_classes is {self.num_classes}, but {len(self.classes)} classes are named")
        if not {"kind", "shape", "dtype"} <= set(self.raw) <= {"kind", "shape", "dtype", *RAW_OPTIONS}:
            raise ValueError(
                f"raw needs kind, shape and dtype, and may have {', '.join(RAW_OPTIONS)}; got {sorted(self.raw)}"
            )
        return self

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of the output for one sample."""
        return self.output_shape or (self.num_classes,)

    @property
    def tensors(self) -> tuple[dict[str, Any], ...]:
        """The tensors of a sample, as a manifest's `raw` lists them; empty if a sample is one array."""
        return tuple(self.raw.get("tensors") or ())

    @property
    def takes_ids(self) -> bool:
        """Whether the input is token ids (int32) instead of float32."""
        return bool(self.raw["dtype"] == "int32")

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model itself ends in a softmax or in sigmoids, so that neither must be applied afterwards."""
        return self.source is not None and (self.source.probabilities or self.source.sigmoids)

    @property
    def head(self) -> dict[str, Any] | None:
        """The `head` of a bundle's manifest, if this is a published detector with outputs of its own."""
        return self.source.head if self.source else None

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch runs the network and has access to its layers."""
        return self.source is None or self.source.kind == "exported"

    @property
    def interpreter(self) -> str:
        """Name and version of the library that runs the network unmodified."""
        distribution, name = INTERPRETERS["exported" if self.source is None else self.source.kind]
        return f"{name} {metadata.version(distribution)}"

    @property
    def called(self) -> str:
        """The name of the network in messages: its builder or its file."""
        return self.source.file if self.source else str(self.builder)


def read_spec(folder: Path) -> ModelSpec:
    """Read and check the `model.json` of `folder`; raise ModelError if it cannot be read or is invalid."""
    path = folder / SPEC
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("format") > FORMAT:
            raise ModelError(f"{path}: written by a newer edgekit; update this one")
        return ModelSpec.model_validate(fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise ModelError(f"{path}: not a saved model ({error}); run the stage that made it again") from None
