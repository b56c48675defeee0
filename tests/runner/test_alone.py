"""A device without a network, or a user without a home: the runner works, calls nobody and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import requirements, watched

from .conftest import samples

RUN = [sys.executable, "-m", "edgekit.runner"]
UNWRITABLE = "/proc"
"""Where nobody can make a folder, not even root."""


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sample") / "sample.npy"
    np.save(path, samples()[0])
    return str(path)


@pytest.fixture
def alone() -> list[str]:
    """What to put before a command for a network of its own, in which nothing answers."""
    return requirements.network_namespace()


def commands(bundle: Path, array: str, *more: str) -> list[list[str]]:
    path = str(bundle)
    return [["predict", path, array, *more], ["bench", path, "--calls", "20", *more], ["doctor", path]]


@pytest.mark.parametrize("key", ["tflite", "openvino", "onnx"])
def test_a_first_load_calls_nobody_and_leaves_only_its_choice(
    key: str, bundles: dict[str, Path], array: str, tmp_path: Path
) -> None:
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    command = [*watched.command(trace), *RUN, "predict", str(bundles[key]), array]
    done = subprocess.run(command, env=watched.environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left = watched.left(home)
    assert left and [name for name in left if not name.startswith(".cache/edgerun/")] == []
    assert watched.calls(trace) == []


@pytest.mark.parametrize("key", ["tflite", "onnx"])
def test_without_a_network_and_with_a_home_that_cannot_be_written(
    key: str, bundles: dict[str, Path], array: str, alone: list[str]
) -> None:
    for command in commands(bundles[key], array):
        environment = watched.environment(Path(UNWRITABLE))
        done = subprocess.run([*alone, *RUN, *command], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (command, done.stderr)
        assert done.stdout


def test_without_a_home(bundles: dict[str, Path], array: str, alone: list[str]) -> None:
    """Nothing is tried, or the choice would be kept in the home that this account really has."""
    environment = watched.environment(Path(UNWRITABLE))
    del environment["HOME"]
    for command in commands(bundles["onnx"], array, "--no-trial"):
        done = subprocess.run([*alone, *RUN, *command], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
