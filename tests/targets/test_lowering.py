"""What litert-torch cannot lower is computed by what it can, and a diagnosis costs no file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.models import store
from edgekit.targets import evaluate, float_ops
from edgekit.targets.openvino import convert as openvino
from edgekit.targets.openvino import graph
from edgekit.targets.tflite import convert as tflite
from edgekit.targets.tflite.lowering import LoweredNetwork

SHAPE = (3, 16, 16)
LAYERS = {
    "output padding": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), (2, 4, 5, 7)),
    "more behind than before": (
        nn.ConvTranspose2d(4, 6, 3, (3, 2), (0, 1), output_padding=(2, 1), dilation=2, groups=2, bias=False),
        (2, 4, 5, 7),
    ),
    "over time": (nn.ConvTranspose1d(4, 6, 3, 2, 1, output_padding=1), (2, 4, 5)),
    "one maximum": (nn.AdaptiveMaxPool2d(1), (2, 4, 5, 7)),
    "a side left": (nn.AdaptiveMaxPool2d((2, None)), (2, 4, 5, 7)),
    "sizes that divide": (nn.AdaptiveMaxPool2d((2, 4)), (2, 4, 6, 8)),
    "maxima over time": (nn.AdaptiveMaxPool1d(3), (2, 4, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_values_stay(name: str) -> None:
    layer, shape = LAYERS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert LoweredNetwork.applies_to(layer, (x,))
    torch.testing.assert_close(LoweredNetwork(layer)(x), layer(x))


def test_other_layers_are_left_alone() -> None:
    network = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2, 1), nn.AdaptiveAvgPool2d(2), nn.MaxPool2d(2, ceil_mode=True))
    assert not LoweredNetwork.applies_to(network, (torch.randn(1, 4, 5, 5),))


def rewritten() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(3), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def ceiled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(2, 2, ceil_mode=True), nn.AdaptiveMaxPool2d(2), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip


def saved(builder: str, folder: Path) -> tuple[Path, np.ndarray]:
    spec = store.ModelSpec(
        builder=f"{builder if ':' in builder else f'{__name__}:{builder}'}",
        input_shape=SHAPE if ":" not in builder else (3, 32, 32),
        num_classes=10,
        classes=tuple("0123456789"),
        raw={"kind": "image", "shape": [16, 16, 3], "dtype": "float32"},
    )
    store.save(folder / "model", store.build(spec), spec)
    return folder / "model", np.random.default_rng(0).normal(size=(16, *spec.input_shape)).astype(np.float32)


def snr_db(outputs: np.ndarray, expected: np.ndarray) -> float:
    return float(10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()))


@pytest.mark.parametrize("builder", ["rewritten", "tests.stages.prune.networks:lenet"])
def test_tflite_takes_them(builder: str, tmp_path: Path) -> None:
    folder, x = saved(builder, tmp_path)
    expected = evaluate.torch_outputs(folder, x)
    for precision, least_db in (("fp32", 100), ("int8", 25)):
        files = tflite.convert(folder, precision, x, tmp_path / precision)
        found = evaluate.file_outputs("rewritten", "tflite", tmp_path / precision, files, x)
        assert snr_db(found, expected) > least_db


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_openvino_takes_a_pooling_whose_operator_has_two_outputs(precision: str, tmp_path: Path) -> None:
    folder, x = saved("ceiled", tmp_path)
    files = openvino.convert(folder, precision, x, tmp_path / "made")
    found = evaluate.file_outputs("ceiled", "openvino", tmp_path / "made", files, x)
    assert snr_db(found, evaluate.torch_outputs(folder, x)) > 25


def test_a_diagnosis_that_fails_costs_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise IndexError("tuple index out of range")

    folder, x = saved("ceiled", tmp_path)
    monkeypatch.setattr(graph, "read", broken)
    monkeypatch.setattr(float_ops, "_openvino", broken)
    files = openvino.convert(folder, "int8", x, tmp_path / "made")
    assert files.debris == ()
    assert files.float_ops == ("not known: IndexError: tuple index out of range",)
    assert (tmp_path / "made" / "model.xml").is_file()
    assert "openvino: redundant operators could not be read: IndexError" in capsys.readouterr().err
