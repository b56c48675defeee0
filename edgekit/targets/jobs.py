"""What passes between the stage and the children that convert for it, as plain JSON."""

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
"""The precision that the others of a network are made from."""


@dataclass(frozen=True)
class Quantization:
    """How int8 comes about: where ranges end, whether biases are corrected, which layers stay in float.

    `keep_float` holds names of modules of the PyTorch network, such as `blocks.2.conv`.
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
"""The whole range that the samples show, biases as they are, every layer int8."""


@dataclass(frozen=True)
class ConvertedFiles:
    """A converted model: file names inside its folder, and its tensors.

    `float_ops` lists the operators of an int8 model that still compute in float, as the module `float_ops` finds them.
    `not_offered` lists what its `Quantization` asks for and the target cannot do, `debris` its redundant operators.
    `free_batch` says that an ONNX file takes any number of samples a call; its tensors state one. `folding` says what
    became of the preprocess steps, where they were to be folded into the file, `sparse_weights` what became of its
    zeros, where these were to be stored as such.
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

    @property
    def input(self) -> TensorSpec:
        """The only input; several are joined (`runner/input_vector.py`)."""
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
            free_batch=fields.get("free_batch", False),  # a variant's record says nothing of it
            folding=fields.get("folding", ""),
            sparse_weights=fields.get("sparse_weights", ""),
        )


@dataclass(frozen=True)
class ConversionStep:
    """One variant to make in `out`. `nncf_folder` is set where the quantize stage fine-tuned the network (QAT).

    `fold` is for targets that `FOLD_PREPROCESS` names, `sparse` for those of `SPARSE_WEIGHTS`.
    """

    precision: str
    method: Method
    model_folder: Path
    out: Path
    nncf_folder: Path | None = None
    quantization: Quantization = MINMAX
    fold: bool = False
    sparse: bool = False

    @property
    def key(self) -> str:
        """What its job calls it: a precision may be made by several recipes."""
        return self.out.name

    def depends_on(self, other: ConversionStep) -> bool:
        """Whether it is made from the same float model that `other`, an fp32 step, is; learnt ranges come without."""
        same = self.model_folder == other.model_folder and self.nncf_folder is None
        return other.precision == FLOAT and self.precision != FLOAT and same


@dataclass(frozen=True)
class ConversionJob:
    """All precisions of one model on one target, made by one fresh process. `calibration` is an .npy file."""

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
                )
                for step in fields["steps"]
            ),
        )


def plain_method(precision: str) -> Method:
    """How a precision comes about where nothing was tuned for it."""
    return "float" if precision in ("fp32", "fp16") else "ptq"


def input_layout(input_shape: tuple[int, ...], image: Literal["NHWC", "NCHW"]) -> str:
    """Layout of a model's input tensor, for a network that takes (C, H, W), (F,) or anything else."""
    return image if len(input_shape) == 3 else "NC" if len(input_shape) == 1 else "ANY"


def output_layout(shape: Sequence[int]) -> str:
    """Of a model's output tensor, its batch first."""
    return "NC" if len(shape) == 2 else "ANY"


def inputs_in_order(found: Sequence[TensorSpec], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """The file's inputs, one, or in the order of the samples' tensors; ConversionError where it lost one."""
    if len(found) == 1 and not names:
        return tuple(found)
    by_name = {each.name: each for each in found}
    if not by_name or sorted(by_name) != sorted(names):
        has = ", ".join(names) or "one tensor"
        raise ConversionError(
            f"the converted file takes {', '.join(by_name) or 'nothing'}, the samples have {has}; "
            f"{_fix_inputs(len(by_name), max(len(names), 1))}"
        )
    return tuple(by_name[name] for name in names)


def _fix_inputs(takes: int, given: int) -> str:
    """What to do about a file whose inputs are not the samples' tensors, by the numbers of both."""
    if takes < given:
        return "let the network use every tensor that it is given"
    if takes > given:
        return "the converter made inputs of the network's own constants: leave this target out, or report it"
    return "the converter renamed them: give the tensors shorter, plain names"


def input_parts(x: np.ndarray, inputs: Sequence[TensorSpec], content: bytes = b"") -> list[np.ndarray]:
    """What each input takes of samples (n, …), as its plain dtype; quantized inputs are not for this.

    The `content` of a file may say that it takes bytes (`runner/backends/byte_inputs.py`).
    """
    to_bytes = byte_inputs.byte_encoder(content, inputs)
    x = x if to_bytes is None else to_bytes(x)
    arrays = [x] if len(inputs) == 1 else split(x, [each.shape[1:] for each in inputs])
    return [
        np.ascontiguousarray(array.astype(each.dtype, copy=False)) for array, each in zip(arrays, inputs, strict=True)
    ]
