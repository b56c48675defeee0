"""What a model file requires of its interpreter, read without any library.

Each target has a reader, a module with the target's name. It offers `read(data: bytes) -> ModelRequirements`, and
`check_closed(data: bytes)`, which refuses a file that makes an interpreter open other files. Both raise BundleError,
and nothing else, even for malformed bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.runner.errors import BundleError

SUFFIXES = {"tflite": ".tflite", "onnx": ".onnx", "openvino": ".xml"}
"""The suffix of the model file that lists the operators."""


@dataclass(frozen=True, order=True)
class Operator:
    """A type of operator. Its origin, `domain`, is "builtin" or "custom" in TFLite, an ONNX domain, or an opset."""

    domain: str
    name: str
    version: int


@dataclass(frozen=True)
class ModelRequirements:
    """The operators of a model, sorted and without duplicates, and for ONNX the version of the file format."""

    operators: tuple[Operator, ...]
    opsets: tuple[tuple[str, int], ...] = ()
    ir_version: int | None = None


def read(target: str, files: Mapping[str, bytes]) -> ModelRequirements | None:
    """Return what the model among `files` needs, or None for a target without a reader."""
    suffix = SUFFIXES.get(target)
    names = sorted(name for name in files if suffix and name.endswith(suffix))
    if not names:
        return None
    try:
        requirements: ModelRequirements = _reader(target).read(files[names[0]])
    except BundleError as error:
        raise BundleError(f"{names[0]}: {error}") from None
    return requirements


def check_closed(name: str, data: bytes) -> None:
    """Raise BundleError for a model file that makes an interpreter open other files, or for which there is no reader.

    Signatures and digests do not cover files outside a bundle, and the bundle's author may not be allowed to read them.
    """
    target = next((each for each, suffix in SUFFIXES.items() if name.endswith(suffix)), None)
    if target is None:
        raise BundleError("no reader can tell which other files such a file opens; add one to edgekit/runner/operators")
    _reader(target).check_closed(data)


def _reader(target: str) -> Any:
    return importlib.import_module(f"{__name__}.{target}")
