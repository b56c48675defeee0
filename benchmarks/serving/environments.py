"""Environments of the peers, each its own, made on demand under build/serving."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import environments
from benchmarks.environments import NotRun
from benchmarks.serving.machine import HOME

INTERPRETERS = {"tflite": "ai-edge-litert", "openvino": "openvino", "onnx": "onnxruntime"}


def python_of(name: str, packages: Sequence[str]) -> Path:
    """The Python of an environment that holds exactly these packages and theirs; NotRun where it cannot be made."""
    return environments.python_of(HOME / name, packages)


def interpreter_package(target: str) -> str:
    """The interpreter of a bundle, in the version that this environment has: every server runs the same."""
    package = INTERPRETERS[target]
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        raise NotRun(f"{package} is not installed here") from None
