"""A model of another framework as PyTorch sees it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.models.cost import OUTSIDE, cost, layer_costs
from edgekit.models.files import as_module, op_count
from edgekit.models.files.task_outputs import TaskOutputs
from tests.models.files import files

NOT_TORCH = ("keras", "onnx", "openvino", "tflite")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    return {kind: files.make(kind, home / kind) for kind in NOT_TORCH}


def opened(path: Path, kind: str) -> torch.nn.Module:
    return as_module.network(path, kind, files.SHAPE, TaskOutputs(10), op_count.count_file(path, kind))


@pytest.mark.parametrize("kind", NOT_TORCH)
def test_it_answers_many_as_it_answers_one(kind: str, models: dict[str, Path]) -> None:
    x, module = torch.from_numpy(files.samples(40)), opened(models[kind], kind)
    alone = torch.cat([module(x[place : place + 1]) for place in range(len(x))])
    assert torch.allclose(module(x), alone, atol=1e-5)
    if kind != "keras":
        with torch.inference_mode():
            assert torch.allclose(alone, files.network()(x), atol=1e-4)


def test_keras_answers_as_keras(models: dict[str, Path]) -> None:
    x = files.samples()
    expected = files.keras()(x.transpose(0, 2, 3, 1), training=False).numpy()
    assert np.allclose(opened(models["keras"], "keras")(torch.from_numpy(x)).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", NOT_TORCH)
def test_what_it_costs_is_what_its_network_costs(kind: str, models: dict[str, Path]) -> None:
    module = opened(models[kind], kind)
    found, rows = cost(module, files.SHAPE), layer_costs(module, files.SHAPE)
    assert [row.layer for row in rows] == ["model", OUTSIDE] and rows[1].macs == 0
    if kind == "keras":
        by_hand = 16 * 16 * 12 * 27 + 8 * 8 * 12 * 9 + 8 * 8 * 16 * 12 + 160
        assert found.macs == by_hand
    else:
        expected = cost(files.network(), files.SHAPE)
        assert found.macs == expected.macs
        assert 0.85 < found.parameters / expected.parameters <= 1  # norms are folded in


def test_a_copy_is_opened_anew(models: dict[str, Path]) -> None:
    module = opened(models["onnx"], "onnx")
    other = copy.deepcopy(module)
    assert other.model is not module.model
    x = torch.from_numpy(files.samples(3))
    assert torch.equal(other(x), module(x))


@pytest.mark.parametrize("kind", [*NOT_TORCH, "exported"])
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    folder = files.saved(kind, tmp_path)
    module, spec = store.load(folder)
    assert spec.source is not None and spec.source.kind == kind and spec.called == files.NAMES[kind]
    assert module(torch.zeros(2, *files.SHAPE)).shape == (2, 10)
    assert store.weight_bytes(folder) == sum(
        path.stat().st_size for path in folder.iterdir() if path.name != store.SPEC
    )
