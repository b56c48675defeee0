"""Whether a run can make of a file what its config asks for, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import TITLES, detect, module, onnx2tf_install


def check(path: Path, targets: Sequence[str], *, alone: bool, named: bool) -> None:
    """Check that the targets take a model file.

    Parameters
    ----------
    alone
        The run converts nothing else. Otherwise a target that refuses the file still has the student.
    named
        The config names the targets, so each of them must take the file. Otherwise one of them is enough.

    Raises
    ------
    ConfigError
        With what to change.
    """
    kind = detect.find(path)
    if kind == "exported":  # every target takes it, and its module imports torch, which no check of a config waits for
        return
    refused = {target: reason for target in targets if (reason := _refusal(path, kind, target))}
    if alone and (len(refused) == len(targets) or (named and refused)):
        reasons = "; ".join(f"{target}: {reason}" for target, reason in refused.items())
        raise ConfigError(
            f"model.source and targets disagree: {TITLES[kind]} becomes none of {list(refused)} ({reasons}); name "
            "other targets, or give distill a student"
        )


def install_converters(path: Path, targets: Sequence[str], *, named: bool) -> None:
    """Install what the targets need for a model file and cannot come with edgekit: onnx2tf.

    Raises
    ------
    ConfigError
        It cannot be installed, and the config names the target that needs it.
    """
    kind = detect.find(path)
    if kind != "onnx" or "tflite" not in targets or _refusal(path, kind, "tflite") or _is_quantized(path):
        return
    try:
        onnx2tf_install.ensure()
    except ModelError as error:
        if named:
            raise ConfigError(
                f"targets: {TITLES[kind]} {error}; or leave out tflite, or baseline from convert.models"
            ) from None


def file_refusal(path: Path, kind: str, target: str) -> str:
    """Why nothing can be made of this one file for a target, whatever its format can become; empty where something can.

    A module of `edgekit.models.files` may have a `refusal(path, target)`.
    """
    own = getattr(module(kind), "refusal", None)
    return str(own(path, target)) if own else ""


def _refusal(path: Path, kind: str, target: str) -> str:
    """Of the format, or of the file; empty also where the file cannot be read."""
    try:
        return module(kind).NOT.get(target, "") or file_refusal(path, kind, target)
    except Exception:  # the error is raised where the file is opened
        return ""


def _is_quantized(path: Path) -> bool:
    try:
        return bool(module("onnx").quantized(path))
    except Exception:  # the error is raised where the file is opened
        return False
