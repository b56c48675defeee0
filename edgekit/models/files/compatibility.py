"""Whether a run can make of a file what its config asks for, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit.core import cache_key
from edgekit.core.errors import ConfigError
from edgekit.models.files import TITLES, detect, module


def check(path: Path, targets: Sequence[str], *, alone: bool) -> None:
    """ConfigError where none of the targets takes the file, or a converter that one needs is not installed.

    `alone` says that the run converts nothing else: otherwise a target that refuses it still has the student.
    """
    kind = detect.find(path)
    if kind == "exported":  # every target takes it, and its module imports torch, which no check of a config waits for
        return
    refused = {target: reason for target, reason in module(kind).NOT.items() if target in targets}
    if alone and len(refused) == len(targets):
        reasons = "; ".join(f"{target}: {reason}" for target, reason in refused.items())
        raise ConfigError(
            f"model.source and targets disagree: {TITLES[kind]} becomes none of {list(targets)} ({reasons}); name "
            "another target, or give distill a student"
        )
    if kind != "onnx" or "tflite" not in targets:
        return
    missing = [name for name, version in cache_key.installed_versions(cache_key.OPTIONAL).items() if version is None]
    if missing and not _is_quantized(path):  # what is quantized becomes nothing else anyway
        raise ConfigError(
            f"targets: {TITLES[kind]} needs {', '.join(missing)} to become TFLite: {module(kind).ONNX2TF}; or leave "
            "out tflite, or baseline from convert.models"
        )


def _is_quantized(path: Path) -> bool:
    try:
        return bool(module("onnx").quantized(path))
    except Exception:  # the error is raised where the file is opened
        return False
