"""A scale or shift behind an int8 dense layer gives OpenVINO the right answers, whatever the network came as."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.models import quantized, store
from edgekit.stages.quantize import ptq
from edgekit.targets import evaluate
from edgekit.targets.openvino import convert

FEATURES, CLASSES = 12, ("a", "b", "c", "d")
LEAST_DB = 25
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "before the last layer": lambda: nn.Sequential(dense(), nn.ReLU(), nn.BatchNorm1d(16), last()),
    "without weights": lambda: nn.Sequential(dense(), nn.BatchNorm1d(16, affine=False), nn.ReLU(), last()),
    "at the input and behind ReLU6": lambda: nn.Sequential(
        nn.BatchNorm1d(FEATURES), dense(), nn.ReLU6(), nn.BatchNorm1d(16), last()
    ),
    "between dropouts": lambda: nn.Sequential(
        dense(), nn.ReLU(), nn.Dropout(), nn.BatchNorm1d(16), nn.Dropout(), dense(16), nn.ReLU(), nn.BatchNorm1d(16),
        last(),
    ),
    "behind which a residual is added": lambda: Residual(nn.ReLU(), nn.BatchNorm1d(16)),
    "a layer scale": lambda: Residual(Scale(torch.linspace(-1, 1, 16))),
    "a shift": lambda: nn.Sequential(dense(), nn.ReLU(), Shift(torch.linspace(-1, 1, 16)), last()),
    "behind a pooling": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 16, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.BatchNorm1d(16), last(),
    ),
}  # fmt: skip


def dense(features: int = FEATURES) -> nn.Module:
    return nn.Linear(features, 16)


def last() -> nn.Module:
    return nn.Linear(16, len(CLASSES))


class Residual(nn.Module):
    def __init__(self, *behind: nn.Module) -> None:
        super().__init__()
        self.first, self.branch, self.last = dense(), nn.Sequential(dense(16), *behind), last()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.last((x + self.branch(x)).relu())


class Scale(nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.value


class Shift(Scale):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.value


def network(name: str) -> nn.Module:
    """With statistics of batch norms that are not those of a fresh network."""
    module = NETWORKS[name]().train()
    with torch.no_grad():
        for _ in range(5):
            module(torch.rand(32, FEATURES) * 3 - 1)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d) and part.affine:
                part.weight.uniform_(-0.5, 1.5)
                part.bias.normal_()
    return module.eval()


def spec(**of: object) -> store.ModelSpec:
    raw = {"kind": "vector", "shape": [FEATURES], "dtype": "float32"}
    return store.ModelSpec(input_shape=(FEATURES,), num_classes=len(CLASSES), classes=CLASSES, raw=raw, **of)


def samples() -> np.ndarray:
    return np.random.default_rng(0).random((40, FEATURES), dtype=np.float32) * 3 - 1


def saved(name: str, folder: Path) -> Path:
    about = spec(builder=f"{__name__}:network", kwargs={"name": name})
    store.save(folder, store.build(about, seed=1).eval(), about)
    return folder


def snr_db(outputs: np.ndarray, expected: np.ndarray) -> float:
    return float(10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()))


def int8_snr_db(folder: Path, out: Path, nncf_folder: Path | None = None) -> float:
    x = samples()
    files = convert.convert(folder, "int8", None if nncf_folder else x, out, nncf_folder)
    return snr_db(evaluate.file_outputs("int8", "openvino", out, files, x), evaluate.torch_outputs(folder, x))


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_is_right_wherever_a_batch_norm_stands(name: str, tmp_path: Path) -> None:
    assert int8_snr_db(saved(name, tmp_path / "model"), tmp_path / "made") > LEAST_DB


def test_so_it_is_behind_ranges_that_training_learnt(tmp_path: Path) -> None:
    folder = saved("before the last layer", tmp_path / "model")
    module, _ = store.load(folder)
    quantized.save(tmp_path / "nncf", ptq.quantize(module, list(torch.from_numpy(samples()).split(1))))
    assert int8_snr_db(folder, tmp_path / "made", tmp_path / "nncf") > LEAST_DB


def test_and_in_a_file_of_keras(tmp_path: Path) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    layers, path = tf.keras.layers, tmp_path / "net.keras"
    tf.keras.utils.set_random_seed(5)
    norm = layers.BatchNormalization(momentum=0.1)
    given = [tf.keras.Input((FEATURES,)), layers.Dense(16, activation="relu"), norm, layers.Dense(4)]
    model = tf.keras.Sequential(given)
    for _ in range(5):
        model(samples(), training=True)
    model.save(path)
    source = store.Source(kind="keras", file=path.name)
    store.save_source(tmp_path / "model", path, spec(source=source))
    assert int8_snr_db(tmp_path / "model", tmp_path / "made") > LEAST_DB


def test_and_in_a_file_of_onnx(tmp_path: Path) -> None:
    module, path = network("before the last layer"), tmp_path / "net.onnx"
    torch.onnx.export(module, (torch.zeros(1, FEATURES),), str(path), dynamo=False, input_names=["x"])
    source = store.Source(kind="onnx", file=path.name)
    store.save_source(tmp_path / "model", path, spec(source=source))
    assert int8_snr_db(tmp_path / "model", tmp_path / "made") > LEAST_DB
