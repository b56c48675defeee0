"""Environments of the peers, each its own, made on demand under build/serving."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.serving.machine import HOME, NotRun

INTERPRETERS = {"tflite": "ai-edge-litert", "openvino": "openvino", "onnx": "onnxruntime"}
LONGEST_S = 1800


def python_of(name: str, packages: Sequence[str]) -> Path:
    """The Python of an environment that holds exactly these packages and theirs; NotRun where it cannot be made."""
    folder = HOME / name
    python, made = folder / "bin" / "python", folder / ".made"
    wanted = "\n".join(packages)
    if made.is_file() and made.read_text() == wanted:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    for command in ([sys.executable, "-m", "venv", str(folder)], pip):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{name}: {' '.join(command)} took longer than {LONGEST_S} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise NotRun(f"{name}: {' '.join(command)} ended with exit code {done.returncode}: {' '.join(said)}")
    made.write_text(wanted)
    return python


def interpreter_package(target: str) -> str:
    """The interpreter of a bundle, in the version that this environment has: every server runs the same."""
    package = INTERPRETERS[target]
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        raise NotRun(f"{package} is not installed here") from None
