"""A valid bundle whose model crashes its interpreter: the calling process survives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.device.autotune import run_selftest
from edgekit.runner import bundle, load
from edgekit.runner.backends import INTERPRETERS
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BackendError

from . import broken
from .conftest import SIDE, ModelFiles, manifest_for, members_for, samples

IMAGE = (1, SIDE, SIDE, 1)
SOURCE, RESULT = TensorSpec("image", IMAGE, "float32", "NHWC"), TensorSpec("result", IMAGE, "float32", "ANY")


def write(path: Path, model: bytes) -> Path:
    """A bundle of a convolution, its golden outputs from the arithmetic written out."""
    images = samples(3)
    padded = np.pad(images[..., 0] / np.float32(255), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    results = np.einsum("nhwij,ij->nhw", windows, broken.KERNEL)[..., None]
    made = ModelFiles("tflite", {"model.tflite": model}, SOURCE, RESULT, 1e-4)
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e-4, "top1": False}
    manifest = manifest_for(made, task="raw", labels=[], activation="none", golden=golden)
    bundle.write(path, manifest, members_for(made, images, results))
    return path


@pytest.fixture
def crashing(tmp_path: Path) -> Path:
    return write(tmp_path / "crashing.edge.zip", broken.tflite(claimed_side=4096))


def test_the_same_model_is_valid_if_its_manifest_is_right(tmp_path: Path) -> None:
    path = write(tmp_path / "sound.edge.zip", broken.tflite())
    assert run_selftest(path, bundle.read(path)).ok
    assert main(["selftest", str(path)]) == 0


def test_the_crash_is_one_line_with_its_signal(crashing: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert bundle.read(crashing).manifest.target == "tflite"
    assert main(["selftest", str(crashing), "--interpreter", "litert"]) == 5
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "crashed (SIGSEGV); the model is broken" in captured.err


def test_loading_survives_and_remembers_nothing(
    crashing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BackendError, match="no interpreter on this machine can run this bundle: .*SIGSEGV"):
        load(crashing, interpreter="litert")
    assert not list(tmp_path.glob("cache/**/*.json"))
    assert main(["predict", str(crashing), "sample.npy", "--interpreter", "litert"]) == 5


def test_another_interpreter_that_survives_it_is_taken(crashing: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """TensorFlow's own takes the shape from the data; where it is not installed, the crash is all there is to tell."""
    code = main(["selftest", str(crashing)])
    captured = capfd.readouterr()
    if INTERPRETERS["tensorflow"].is_installed:
        assert code == 0
        assert "interpreter tensorflow" in captured.out
    else:
        assert code == 5
        assert "SIGSEGV" in captured.err
