"""The runner where it has to live: environments that hold numpy, one interpreter and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import pyz

from .conftest import LABELS, reference, samples

pytestmark = pytest.mark.slow

ENVIRONMENTS = {
    "litert": ["numpy", "ai-edge-litert==2.3.0"],
    "tflite_runtime": ["numpy<2", "tflite-runtime==2.14.0"],
    "openvino": ["numpy", "openvino==2026.4.1"],
    "onnxruntime": ["numpy", "onnxruntime==1.31.1"],
}
TARGETS = {"openvino": ["openvino"], "onnxruntime": ["onnx"]}
FOREIGN = {"torch", "tensorflow", "edgekit", "pydantic", "pillow", "scikit-learn"}


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Name of the interpreter, and the Python of an environment made for it."""
    name: str = request.param
    if name == "tflite_runtime" and sys.version_info[:2] != (3, 11):
        pytest.skip(
            f"tflite-runtime 2.14.0 is tried on Python 3.11; this is {sys.version_info[0]}.{sys.version_info[1]}"
        )
    folder = tmp_path_factory.mktemp(name)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *ENVIRONMENTS[name]]
    subprocess.run(command, check=True, timeout=600, env=clean())
    return name, python


def clean() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("device") / "edgerun.pyz"
    pyz.build(path)
    return path


def run(python: Path, runner: Path, *arguments: object) -> str:
    command = [str(part) for part in (python, runner, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=runner.parent, env=clean())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_runner_lives_on_numpy_and_one_interpreter(
    environment: tuple[str, Path], runner: Path, bundles: dict[str, Path], tmp_path: Path
) -> None:
    name, python = environment
    listing = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True, env=clean()
    )
    held = {entry["name"].lower() for entry in json.loads(listing.stdout)}
    assert "numpy" in held and not held & FOREIGN
    np.save(tmp_path / "sample.npy", samples()[0])
    label = LABELS[int(reference(samples()[:1])[0].argmax())]
    for key in TARGETS.get(name, ["tflite", "tflite-int8"]):
        report = json.loads(run(python, runner, "selftest", bundles[key], "--json"))
        assert report["ok"] and report["interpreter"] == name
        answer = json.loads(run(python, runner, "predict", bundles[key], tmp_path / "sample.npy", "--json"))
        assert answer["label"] == label
        figures = json.loads(run(python, runner, "bench", bundles[key], "--calls", 50, "--warmup", 2, "--json"))
        assert 0 < figures["execute"]["p50_ms"] < 100 and figures["interpreter"] == name


def test_what_is_missing_is_named_with_its_pip_line(
    environment: tuple[str, Path], runner: Path, bundles: dict[str, Path]
) -> None:
    name, python = environment
    key, package = ("onnx", "onnxruntime") if name != "onnxruntime" else ("openvino", "openvino")
    command = [str(part) for part in (python, runner, "selftest", bundles[key])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=runner.parent, env=clean())
    assert done.returncode == 5
    assert f"pip install {package}" in done.stderr and "Traceback" not in done.stderr
