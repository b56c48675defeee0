"""The Pythons of this machine: on the PATH, and where pyenv keeps them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
FEWEST = 4
"""With fewer versions than this the matrix shows too little, and CI fails."""
ASK = (
    "import platform, sys; print('{}.{}'.format(*sys.version_info[:2]), platform.python_implementation(),"
    " getattr(sys, '_base_executable', sys.executable), sep='\\n')"
)


@cache
def available() -> dict[str, Path]:
    """The Python of every version that is here and really runs (a pyenv shim may name one that is not set up)."""
    pythons = {version: next(_running(version), None) for version in VERSIONS}
    return {version: path for version, path in pythons.items() if path is not None}


def _running(version: str) -> Iterator[Path]:
    for path in _candidates(version):
        try:
            done = subprocess.run([str(path), "-I", "-c", ASK], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.splitlines()[:2] == [version, "CPython"]:
            yield Path(done.stdout.splitlines()[2])


def _candidates(version: str) -> Iterator[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += [home / "bin" for home in sorted((pyenv / "versions").glob(f"{version}.*"), reverse=True)]
    for folder in folders:
        path = folder / f"python{version}"
        if os.access(path, os.X_OK):
            yield path
