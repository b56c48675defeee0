"""onnx2tf, which makes TFLite of ONNX files, in a folder of its own.

It pins older versions of what is installed here, and works with these. No resolver can therefore install it beside
them, so the first run that needs it installs it without its requirements into the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from edgekit.core import lock
from edgekit.core.cache_key import ONNX2TF
from edgekit.core.errors import EdgekitError, ModelError
from edgekit.core.progress import to_stderr
from edgekit.core.subprocesses import last_useful_line

REQUIREMENT = f"onnx2tf=={ONNX2TF}"
WAIT_S = 600.0
"""Seconds that an installation may take, here or in another process at the same time."""


def ensure() -> None:
    """Make onnx2tf importable here and in the processes that this one starts; install it if it is not there.

    Raises
    ------
    ModelError
        It cannot be installed, for example without a network. The message has the command that installs it.
    """
    if _is_installed():
        return
    folder = _folder()
    if not folder.is_dir():
        to_stderr(f"edgekit: installing {REQUIREMENT}, which makes TFLite of ONNX files, into {folder}")
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
    """Whether this environment has onnx2tf already, as an image without a network may."""
    try:
        return metadata.version("onnx2tf") == ONNX2TF
    except metadata.PackageNotFoundError:
        return False


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache).absolute() / "edgekit" / f"onnx2tf-{ONNX2TF}"


def _install(folder: Path) -> None:
    """All or nothing: the folder gets its name when it is complete."""
    with lock.hold(folder.with_name(f"{folder.name}.lock"), "edgekit", WAIT_S, "set XDG_CACHE_HOME"):
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            made = Path(temporary) / folder.name
            options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(made), REQUIREMENT]
            command = [*_installer(), *options]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=WAIT_S
            )
            if done.returncode:
                raise ModelError(last_useful_line(done.stderr) or f"exit code {done.returncode}")
            made.rename(folder)


def _installer() -> list[str]:
    """pip; uv where an environment was made without pip, as uv makes them."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    return ["uv", "pip", "install", "--python", sys.executable]
