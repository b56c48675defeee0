"""A model file on its own interpreter: the runner's backend on the file's own bytes, and no PyTorch around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.measure.forecast import BASELINE_RUNTIMES
from edgekit.models import baseline, store
from edgekit.models.files import TITLES, module, standalone
from edgekit.runner.backends import openvino as openvino_backend
from edgekit.runner.backends.onnxruntime import OnnxruntimeBackend
from edgekit.runner.backends.tflite import TfliteBackend
from edgekit.stages.profile import runtimes
from tests.models.files.files import SHAPE, make, samples, spec

BACKENDS = {"onnx": OnnxruntimeBackend, "openvino": openvino_backend.OpenvinoBackend, "tflite": TfliteBackend}
FILES = sorted(set(TITLES) - {"exported"})
SAMPLE = (*SHAPE[1:], SHAPE[0])


class NotCalled(nn.Module):
    """Stands for PyTorch's view of a file where that must not be what is timed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the file was called through PyTorch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def saved(kind: str, folder: Path) -> tuple[Path, store.ModelSpec]:
    """A saved network that came as such a file."""
    home = folder / kind
    if not home.is_dir():
        path = make(kind, folder / f"{kind}-made")
        store.save_source(home, path, spec(store.Source(kind=kind, file=path.name)))  # type: ignore[arg-type]
    return home, store.read_spec(home)


@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_it_is_the_runners_backend_on_the_very_bytes(kind: str, folder: Path) -> None:
    home, found = saved(kind, folder)
    assert found.source is not None
    path = home / found.source.file
    run = standalone.open(path, kind, SAMPLE).run
    assert isinstance(run.__self__, BACKENDS[kind])  # type: ignore[attr-defined]
    content, _, _ = module(kind).on_device(path)
    if kind == "onnx":  # its batch is open, and a device has one sample: this is what ships
        assert list(content.values()) == [module(kind).onnx(path)]
    else:
        assert content == {name: (home / name).read_bytes() for name in content}


@pytest.mark.parametrize("kind", FILES)
def test_it_answers_as_pytorchs_view_of_it(kind: str, folder: Path) -> None:
    home, found = saved(kind, folder)
    network, _ = store.load(home)
    x = samples(3)
    for one in x:
        with torch.inference_mode():
            expected = network(torch.from_numpy(one[None])).numpy()
        np.testing.assert_allclose(baseline.opener(home, NotCalled(), found, one[None])()(), expected, atol=1e-4)


@pytest.mark.parametrize("kind", FILES)
def test_what_the_profile_times_of_a_file_is_not_pytorch(kind: str, folder: Path) -> None:
    home, found = saved(kind, folder)
    rows, _, _ = runtimes.measure(NotCalled(), home, samples(1), 20, 5, compiling=True, runtimes=False, timeout_s=60)
    assert rows[0]["way"] == BASELINE_RUNTIMES[found.interpreter.partition(" ")[0]] and rows[0]["p50_ms"] > 0
    assert "eager" not in rows[0]["way"].lower()


@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_a_session_of_a_file_imports_no_pytorch(kind: str, folder: Path, tmp_path: Path) -> None:
    home, _ = saved(kind, folder)
    np.save(tmp_path / "x.npy", (samples(2).transpose(0, 2, 3, 1) * 255).astype(np.uint8))
    script = (
        "import pathlib, sys\nfrom edgekit.measure import eager_session\n"
        f"eager_session.main(pathlib.Path({str(home)!r}), pathlib.Path({str(tmp_path / 'x.npy')!r}))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], input="0\n1\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ready, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ready["began"] < ready["imported"] < ready["loaded"] < ready["warm"]
    assert [len(answer["scores"]) for answer in answers] == [10, 10]
    assert all(sum(answer["scores"]) == pytest.approx(1, abs=1e-3) for answer in answers)


def test_an_exported_program_is_pytorchs_and_stays_eager(folder: Path) -> None:
    home, found = saved("exported", folder)
    with pytest.raises(AssertionError, match="through PyTorch"):
        baseline.opener(home, NotCalled(), found, samples(1))()()
