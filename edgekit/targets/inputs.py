"""A converted file's several inputs: in the samples' order, and what each takes of samples that are one vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner.backends import byte_inputs
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.input_vector import split


def in_order(found: Sequence[TensorSpec], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """The file's inputs, one, or in the order of the samples' tensors; ConversionError where it lost one."""
    if len(found) == 1 and not names:
        return tuple(found)
    by_name = {each.name: each for each in found}
    if not by_name or sorted(by_name) != sorted(names):
        has = ", ".join(names) or "one tensor"
        raise ConversionError(
            f"the converted file takes {', '.join(by_name) or 'nothing'}, the samples have {has}; "
            f"{_fix(len(by_name), max(len(names), 1))}"
        )
    return tuple(by_name[name] for name in names)


def _fix(takes: int, given: int) -> str:
    """What to do about a file whose inputs are not the samples' tensors, by the numbers of both."""
    if takes < given:
        return "let the network use every tensor that it is given"
    if takes > given:
        return "the converter made inputs of the network's own constants: leave this target out, or report it"
    return "the converter renamed them: give the tensors shorter, plain names"


def parts(x: np.ndarray, inputs: Sequence[TensorSpec], content: bytes = b"") -> list[np.ndarray]:
    """What each input takes of samples (n, …), as its plain dtype; quantized inputs are not for this.

    The `content` of a file may say that it takes bytes (`runner/backends/byte_inputs.py`).
    """
    to_bytes = byte_inputs.encoding(content, inputs)
    x = x if to_bytes is None else to_bytes(x)
    arrays = [x] if len(inputs) == 1 else split(x, [each.shape[1:] for each in inputs])
    return [
        np.ascontiguousarray(array.astype(each.dtype, copy=False)) for array, each in zip(arrays, inputs, strict=True)
    ]
