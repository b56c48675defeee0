"""What a model file asks of its interpreter, read without any library. One reader per target, named after it.

A reader offers `read(data: bytes) -> Needs` and `check_closed(data: bytes)`, which refuses a file that makes an
interpreter open other files. Both raise BundleError, and nothing else, also for bytes that they cannot follow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
class ModelRequirements:
    """Operators, each once and sorted; ONNX models also say which version of the file format they are written in."""

    operators: tuple[Operator, ...]
    opsets: tuple[tuple[str, int], ...] = ()
    ir_version: int | None = None


def read(target: str, files: Mapping[str, bytes]) -> ModelRequirements | None:
    """What the model among `files` needs; None for a target that has no reader."""
    suffix = SUFFIXES.get(target)
    found = sorted(name for name in files if suffix and name.endswith(suffix))
    if not found:
        return None
    try:
        needs: ModelRequirements = _reader(target).read(files[found[0]])
    except BundleError as error:
        raise BundleError(f"{found[0]}: {error}") from None
    return needs


def check_closed(name: str, data: bytes) -> None:
    """BundleError for a model file that makes an interpreter open other files, or whose kind has no reader here.

    Signatures and digests do not cover what lies outside a bundle, and whoever made the bundle may not read it.
    """
    target = next((each for each, suffix in SUFFIXES.items() if name.endswith(suffix)), None)
    if target is None:
        raise BundleError("no reader can tell which other files such a file opens; add one to edgekit/runner/operators")
    _reader(target).check_closed(data)


def _reader(target: str) -> Any:
    return importlib.import_module(f"{__name__}.{target}")
