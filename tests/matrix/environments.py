"""Environments that hold numpy, one interpreter and nothing else, made by uv in about a second from its cache."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from .pythons import VERSIONS

NUMPYS = {"1.26": "numpy==1.26.*", "2": "numpy>=2,<3"}
# As the extras of the package ask for them; without a lower end the resolver would go back to where none belongs.
INTERPRETERS = {
    "litert": "ai-edge-litert>=2.0",
    "tflite_runtime": "tflite-runtime==2.14.0",
    "tensorflow": "tensorflow>=2.16",
    "openvino": "openvino>=2024.4",
    "onnxruntime": "onnxruntime>=1.18",
}
NO_SOLUTION, NO_WHEELS = "No solution found", ("no wheels with a matching", "no usable wheels")
NOT_FOUND = "was not found in the"


@dataclass(frozen=True)
class Combination:
    """One cell of the matrix."""

    python: str
    numpy: str
    interpreter: str

    def __str__(self) -> str:
        return f"py{self.python}-numpy{self.numpy}-{self.interpreter}"

    @property
    def has_wheels(self) -> bool:
        """Whether wheels for x86-64 were found when the matrix was written; only what has none may be missing."""
        if self.interpreter == "tflite_runtime" and self.python in ("3.12", "3.13", "3.14"):
            return False
        return not (self.numpy == "1.26" and self.python in ("3.13", "3.14"))

    @property
    def is_broken(self) -> bool:
        """tflite-runtime was built for numpy 1 and does not say so: it installs beside numpy 2 and cannot work."""
        return self.interpreter == "tflite_runtime" and self.numpy == "2"


COMBINATIONS = [Combination(*parts) for parts in product(VERSIONS, NUMPYS, INTERPRETERS)]


class NoWheels(Exception):
    """The resolver says that no wheels make this combination."""


def may_lack_wheels(combination: Combination) -> bool:
    """Whether it is no fault when the resolver finds nothing; the table of what exists is x86-64's."""
    return not combination.has_wheels or platform.machine() != "x86_64"


@dataclass(frozen=True)
class Environment:
    """Its Python, what it holds by lower-case name, and a folder that stands in for the user's cache."""

    python: Path
    held: dict[str, str]
    cache: Path

    def run(self, *arguments: object, timeout_s: int = 180) -> subprocess.CompletedProcess[str]:
        """Its Python on these arguments, with nothing of this process's Python about it."""
        command = [str(part) for part in (self.python, *arguments)]
        surroundings = {**clean(), "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, cwd=self.cache, env=surroundings, check=False
        )


@contextmanager
def create_environment(combination: Combination, base: Path, folder: Path) -> Iterator[Environment]:
    """An environment for a combination, deleted afterwards; NoWheels when there is none, RuntimeError for the rest."""
    with installed([NUMPYS[combination.numpy], INTERPRETERS[combination.interpreter]], base, folder) as environment:
        yield environment
    if combination.interpreter == "tensorflow" and combination.numpy == "2":  # the last one of this Python
        _uv("cache", "clean", "--quiet", "tensorflow")  # 1.8 GB unpacked, which no other Python uses


@contextmanager
def installed(requirements: Sequence[str], base: Path, folder: Path) -> Iterator[Environment]:
    """An environment of a Python with these requirements, of wheels only; deleted afterwards."""
    python, cache = folder / "env" / "bin" / "python", folder / "cache"
    try:
        cache.mkdir(parents=True)
        _uv("venv", "--quiet", "--python", base, folder / "env")
        _uv("pip", "install", "--quiet", "--only-binary", ":all:", "--python", python, *requirements)
        listing = json.loads(_uv("pip", "list", "--format", "json", "--python", python))
        yield Environment(python, {entry["name"].lower(): entry["version"] for entry in listing}, cache)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean() -> dict[str, str]:
    """This process's environment without what would lead another Python here."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"}


def _uv(*arguments: object) -> str:
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=clean(), check=False)
    if done.returncode == 0:
        return done.stdout
    stderr = " ".join(done.stderr.split())
    if NO_SOLUTION in stderr and NOT_FOUND not in stderr and any(words in stderr for words in NO_WHEELS):
        raise NoWheels(reason(stderr))
    raise RuntimeError(f"uv {' '.join(map(str, arguments))} failed: {stderr}")


def reason(stderr: str) -> str:
    """The resolver's reason, up to where it goes on to what follows from it."""
    sentence = stderr[stderr.find("Because ") + len("Because ") :]
    for end in (" and only the following", " and you require", ", we can conclude", " we can conclude"):
        sentence = sentence.split(end)[0]
    return sentence[:200]
