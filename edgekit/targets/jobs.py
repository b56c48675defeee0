"""Conversion jobs and their results, which pass between the stage and its child processes as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner.backends import byte_inputs
from edgekit.runner.bundle.manifest import TensorSpec, combined_input
from edgekit.runner.input_vector import split
from edgekit.targets.redundant_ops import RedundantOperator

Method = Literal["float", "ptq", "qat", "mixed"]
FLOAT = "fp32"
"""The precision from which the other precisions of a network are made."""


@dataclass(frozen=True)
class Quantization:
    """Options of int8 quantization: how ranges are chosen, whether biases are corrected, which layers stay in float.

    `keep_float` has names of modules of the PyTorch network, such as `blocks.2.conv`.
    """

    ranges: Literal["minmax", "percentile"] = "minmax"
    bias_correction: bool = False
    keep_float: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Quantization:
        return cls(fields["ranges"], fields["bias_correction"], tuple(fields["keep_float"]))


MINMAX = Quantization()
"""Ranges from the samples' minimum and maximum, no bias correction, and every layer in int8."""


@dataclass(frozen=True)
class ConvertedFiles:
    """A converted model: the names of its files in its folder, and its tensors.

    Attributes
    ----------
    float_ops
        Operators of an int8 model that still compute in float (`edgekit.targets.float_ops`).
    not_offered
        Options of the step's `Quantization` that the target does not support.
    debris
        Redundant operators that the converter left in the file.
    free_batch
        Whether an ONNX file accepts any number of samples for each call, although its tensors state one.
    folding
        Whether the preprocess steps were folded into the file, in words; empty if that was not requested.
    sparse_weights
        Whether weights were stored as sparse tensors, in words; empty if that was not requested.
    head
        The `head` of a bundle's manifest, if the model is a published detector with outputs of its own.
    """

    names: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    float_ops: tuple[str, ...] = ()
    not_offered: tuple[str, ...] = ()
    debris: tuple[RedundantOperator, ...] = ()
    free_batch: bool = False
    folding: str = ""
    sparse_weights: str = ""
    head: dict[str, Any] | None = None

    @property
    def input(self) -> TensorSpec:
        """The input; several inputs are joined in one vector (`edgekit.runner.input_vector`)."""
        return combined_input(self.inputs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ConvertedFiles:
        return cls(
            names=tuple(fields["names"]),
            inputs=tuple(TensorSpec(**each) for each in fields["inputs"]),
            outputs=tuple(TensorSpec(**each) for each in fields["outputs"]),
            float_ops=tuple(fields["float_ops"]),
            not_offered=tuple(fields["not_offered"]),
            debris=tuple(RedundantOperator(**one) for one in fields["debris"]),
            free_batch=fields.get("free_batch", False),  # the record of a variant does not have it
            folding=fields.get("folding", ""),
            sparse_weights=fields.get("sparse_weights", ""),
            head=fields.get("head"),
        )


@dataclass(frozen=True)
class ConversionStep:
    """One variant to convert into the folder `out`.

    `nncf_folder` is set if the quantize stage fine-tuned the network (QAT). `fold` says that the file should take the
    bytes of a raw sample (for targets in `FOLD_PREPROCESS`), and `sparse` that weights may be stored as sparse tensors
    (for targets in `SPARSE_WEIGHTS`). `corrected` is the folder of the same network with other biases, from which the
    file is made (`edgekit.targets.bias_correction`).
    """

    precision: str
    method: Method
    model_folder: Path
    out: Path
    nncf_folder: Path | None = None
    quantization: Quantization = MINMAX
    fold: bool = False
    sparse: bool = False
    corrected: Path | None = None

    @property
    def key(self) -> str:
        """The name that identifies the step in its job. A precision is not enough, because recipes may share one."""
        return self.out.name

    def depends_on(self, other: ConversionStep) -> bool:
        """Return whether this step needs the float model that `other` converts. Steps with learned ranges need none."""
        same_model = self.model_folder == other.model_folder and self.nncf_folder is None
        return other.precision == FLOAT and self.precision != FLOAT and same_model


@dataclass(frozen=True)
class ConversionJob:
    """All precisions of one model for one target, converted by one fresh process. `calibration` is an .npy file."""

    model: str
    target: str
    calibration: Path
    steps: tuple[ConversionStep, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "target": self.target,
            "calibration": str(self.calibration),
            "steps": [
                {
                    "precision": step.precision,
                    "method": step.method,
                    "model_folder": str(step.model_folder),
                    "out": str(step.out),
                    "nncf_folder": str(step.nncf_folder) if step.nncf_folder else None,
                    "quantization": step.quantization.to_json(),
                    "fold": step.fold,
                    "sparse": step.sparse,
                    "corrected": str(step.corrected) if step.corrected else None,
                }
                for step in self.steps
            ],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ConversionJob:
        return cls(
            model=fields["model"],
            target=fields["target"],
            calibration=Path(fields["calibration"]),
            steps=tuple(
                ConversionStep(
                    precision=step["precision"],
                    method=step["method"],
                    model_folder=Path(step["model_folder"]),
                    out=Path(step["out"]),
                    nncf_folder=Path(step["nncf_folder"]) if step["nncf_folder"] else None,
                    quantization=Quantization.from_json(step["quantization"]),
                    fold=step["fold"],
                    sparse=step["sparse"],
                    corrected=Path(step["corrected"]) if step["corrected"] else None,
                )
                for step in fields["steps"]
            ),
        )


def plain_method(precision: str) -> Method:
    """Return the method that makes a precision if nothing was tuned for it."""
    return "float" if precision in ("fp32", "fp16") else "ptq"


def input_layout(input_shape: tuple[int, ...], image: Literal["NHWC", "NCHW"]) -> str:
    """Return the layout of a model's input tensor, for a network that takes (C, H, W), (F,) or another shape."""
    return image if len(input_shape) == 3 else "NC" if len(input_shape) == 1 else "ANY"


def output_layout(shape: Sequence[int]) -> str:
    """Return the layout of a model's output tensor; `shape` has the batch first."""
    return "NC" if len(shape) == 2 else "ANY"


def inputs_in_order(inputs: Sequence[TensorSpec], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a file in the order of `names`, the names of the samples' tensors.

    `names` is empty if a sample is a single tensor. Raises ConversionError if the file's inputs are not these tensors.
    """
    if len(inputs) == 1 and not names:
        return tuple(inputs)
    by_name = {each.name: each for each in inputs}
    if not by_name or sorted(by_name) != sorted(names):
        expected = ", ".join(names) or "one tensor"
        raise ConversionError(
            f"the converted file takes {', '.join(by_name) or 'nothing'}, but the samples have {expected}; "
            f"{_fix_inputs(len(by_name), max(len(names), 1))}"
        )
    return tuple(by_name[name] for name in names)


def _fix_inputs(inputs: int, tensors: int) -> str:
    """Return advice for a file whose inputs are not the samples' tensors, from the number of each."""
    if inputs < tensors:
        return "let the network use every tensor that it is given"
    if inputs > tensors:
        return "the converter made inputs of the network's own constants: leave this target out, or report it"
    return "the converter renamed them: give the tensors shorter, plain names"


def input_parts(x: np.ndarray, inputs: Sequence[TensorSpec], content: bytes = b"") -> list[np.ndarray]:
    """Split samples (n, …) into an array for each input, in the input's dtype. The inputs must not be quantized.

    `content` is the content of the file, which may say that it takes bytes (`edgekit.runner.backends.byte_inputs`).
    """
    to_bytes = byte_inputs.byte_encoder(content, inputs)
    x = x if to_bytes is None else to_bytes(x)
    arrays = [x] if len(inputs) == 1 else split(x, [each.shape[1:] for each in inputs])
    return [
        np.ascontiguousarray(array.astype(each.dtype, copy=False)) for array, each in zip(arrays, inputs, strict=True)
    ]
