"""What a model file asks of its interpreter, read without any library. One reader per target, named after it.

A reader offers `read(data: bytes) -> Needs` and raises BundleError, and nothing else, for bytes it cannot follow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.runner.errors import BundleError

SUFFIXES = {"tflite": ".tflite", "onnx": ".onnx", "openvino": ".xml"}
"""Which of a bundle's model files says what the model asks for."""


@dataclass(frozen=True, order=True)
class Operator:
    """One kind of operator. `domain` says who defines it: "builtin" and "custom" (tflite), ONNX's domain, an opset."""

    domain: str
    name: str
    version: int


@dataclass(frozen=True)
class Needs:
    """Operators, each once and sorted; ONNX models also say which version of the file format they are written in."""

    operators: tuple[Operator, ...]
    opsets: tuple[tuple[str, int], ...] = ()
    ir_version: int | None = None


def read(target: str, files: Mapping[str, bytes]) -> Needs | None:
    """What the model among `files` needs; None for a target that has no reader."""
    suffix = SUFFIXES.get(target)
    found = sorted(name for name in files if suffix and name.endswith(suffix))
    if not found:
        return None
    reader = importlib.import_module(f"{__name__}.{target}")
    try:
        needs: Needs = reader.read(files[found[0]])
    except BundleError as error:
        raise BundleError(f"{found[0]}: {error}") from None
    return needs
