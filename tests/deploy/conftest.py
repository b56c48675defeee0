"""The image's folder, made as the Dockerfile's builder makes it: its own COPY and RUN lines, without an engine."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.commands import serve
from tests.conftest import ROOT
from tests.runner.conftest import bundles, models

__all__ = ["bundles", "models"]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
TARGETS = {"ai-edge-litert": "tflite", "openvino": "openvino", "onnxruntime": "onnx"}


@dataclass(frozen=True)
class Built:
    """The folder `/app`, whose interpreter it has, and what the builder printed."""

    folder: Path
    interpreter: str
    printed: str

    def run(self, *words: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        """`edgerun.pyz …` from elsewhere, with nothing but the folder: no variables, no site-packages."""
        python = [sys.executable, "-S", "-B"]
        return subprocess.run(
            [*before, *python, str(self.folder / "edgerun.pyz"), *words],
            env={"PYTHONPATH": str(self.folder / "packages"), **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def stages() -> list[list[str]]:
    """The instructions of each stage, a line each, without comments."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    whole = [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line]
    starts = [number for number, line in enumerate(whole) if line.startswith("FROM ")]
    return [whole[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def serve_options(words: list[str]) -> argparse.Namespace:
    """What `serve` makes of the words of a start."""
    assert words[0] == "serve"
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.arguments(parser)
    return parser.parse_args(words[1:])


def build(home: Path, interpreter: str, bundles: list[Path]) -> Built:
    """Run the builder's stage below `home`, with these bundles in the context."""
    context, app = home / "context", home / "app"
    shutil.copytree(DEPLOY, context / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "edgekit", context / "edgekit", ignore=shutil.ignore_patterns("__pycache__"))
    (context / "mine").mkdir()
    for bundle in bundles:
        shutil.copy(bundle, context / "mine")
    builder = stages()[0]
    for line in (line for line in builder if line.startswith("COPY ")):
        copy(line.replace("${BUNDLES}", "mine"), context, home / "build")
    (command,) = [line.removeprefix("RUN ") for line in builder if line.startswith("RUN ")]
    command = re.sub(r"^python ", f"{sys.executable} ", command).replace("/app", str(app))
    done = subprocess.run(
        ["sh", "-euc", command],
        cwd=home / "build",
        env={"INTERPRETER": interpreter, "WITH": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Built(app, interpreter, done.stdout)


def copy(line: str, context: Path, build: Path) -> None:
    """One COPY from the context: a file or what a pattern names, or a folder's contents."""
    _, source, target = line.split()
    for path in context.glob(source):
        into = build / target / path.name if target.endswith("/") else build / target
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, into) if path.is_dir() else shutil.copy(path, into)
