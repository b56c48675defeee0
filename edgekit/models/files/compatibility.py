"""Check, before anything runs, that a model file can be converted for the targets of a config."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from edgekit.core import lock
from edgekit.core.cache_key import ONNX2TF
from edgekit.core.errors import ConfigError, EdgekitError, ModelError
from edgekit.core.progress import write_to_stderr
from edgekit.core.subprocesses import last_useful_line
from edgekit.models.files import TITLES, detect, module

REQUIREMENT = f"onnx2tf=={ONNX2TF}"
WAIT_S = 600.0
"""Seconds that an installation may take, in this process or in another one at the same time."""


def ensure_onnx2tf() -> None:
    """Make onnx2tf importable here and in the processes that this one starts; install it if it is missing.

    onnx2tf declares older versions of some packages than edgekit needs, although it works with the newer ones. No
    resolver can therefore install both together, so the first run that needs onnx2tf installs it into the user's
    cache, without its requirements.

    Raises
    ------
    ModelError
        onnx2tf cannot be installed, for example without a network. The message has the command that installs it.
    """
    if _is_installed():
        return
    folder = _folder()
    if not folder.is_dir():
        write_to_stderr(f"edgekit: installing {REQUIREMENT}, which converts ONNX files to TFLite, into {folder}")
        try:
            _install(folder)
        except (EdgekitError, OSError, subprocess.SubprocessError) as error:
            raise ModelError(
                f"needs onnx2tf to become TFLite, and it cannot be installed ({error}); with a package index: "
                f"pip install --no-deps --target {folder} {REQUIREMENT}"
            ) from None
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_installed() -> bool:
    """Return whether this environment has onnx2tf already, for example in an image for machines without a network."""
    try:
        return metadata.version("onnx2tf") == ONNX2TF
    except metadata.PackageNotFoundError:
        return False


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache).absolute() / "edgekit" / f"onnx2tf-{ONNX2TF}"


def _install(folder: Path) -> None:
    """Install into a temporary folder, and rename it when it is complete."""
    with lock.hold(folder.with_name(f"{folder.name}.lock"), "edgekit", WAIT_S, "set XDG_CACHE_HOME"):
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            staging = Path(temporary) / folder.name
            options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(staging), REQUIREMENT]
            command = [*_installer(), *options]
            result = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=WAIT_S
            )
            if result.returncode:
                raise ModelError(last_useful_line(result.stderr) or f"exit code {result.returncode}")
            staging.rename(folder)


def _installer() -> list[str]:
    """Return the command of pip, or of uv in an environment without pip, such as those that uv creates."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    return ["uv", "pip", "install", "--python", sys.executable]


def check_targets(path: Path, targets: Sequence[str], *, is_only_model: bool, targets_are_named: bool) -> None:
    """Check that a model file can be converted for the targets.

    Parameters
    ----------
    is_only_model
        Whether the run converts only this file. If it also has a student, a target that refuses the file can still
        convert the student.
    targets_are_named
        Whether the config names the targets. If so, each of them must accept the file; otherwise one is enough.

    Raises
    ------
    ConfigError
        Too few targets accept the file. The message says what to change.
    """
    kind = detect.model_kind(path)
    if kind == "exported":  # every target accepts one, and importing the format's module would import torch, too
        return
    refused = {target: reason for target in targets if (reason := _refusal(path, kind, target))}
    if is_only_model and (len(refused) == len(targets) or (targets_are_named and refused)):
        reasons = "; ".join(f"{target}: {reason}" for target, reason in refused.items())
        raise ConfigError(
            f"model.source and targets disagree: {TITLES[kind]} cannot be converted to any of {list(refused)} "
            f"({reasons}); name other targets, or give distill a student"
        )


def install_converters(path: Path, targets: Sequence[str], *, targets_are_named: bool) -> None:
    """Install onnx2tf, which cannot come with edgekit, if the targets need it for a model file.

    Raises
    ------
    ConfigError
        onnx2tf cannot be installed, and the config names the target that needs it.
    """
    kind = detect.model_kind(path)
    if kind != "onnx" or "tflite" not in targets or _refusal(path, kind, "tflite") or _is_quantized(path):
        return
    try:
        ensure_onnx2tf()
    except ModelError as error:
        if targets_are_named:
            raise ConfigError(
                f"targets: {TITLES[kind]} {error}; or leave out tflite, or baseline from convert.models"
            ) from None


def file_refusal(path: Path, kind: str, target: str) -> str:
    """Return why this file, unlike others of its format, cannot be converted for a target; empty if it can.

    A module of `edgekit.models.files` may have a function `refusal(path, target)` for this.
    """
    own = getattr(module(kind), "refusal", None)
    return str(own(path, target)) if own else ""


def _refusal(path: Path, kind: str, target: str) -> str:
    """Return why the format, or this file, cannot be converted; empty if it can, or if the file cannot be read."""
    try:
        return module(kind).UNSUPPORTED_TARGETS.get(target, "") or file_refusal(path, kind, target)
    except Exception:  # the error is raised where the file is opened
        return ""


def _is_quantized(path: Path) -> bool:
    try:
        return bool(module("onnx").is_quantized(path))
    except Exception:  # the error is raised where the file is opened
        return False
