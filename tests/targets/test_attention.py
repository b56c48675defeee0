"""PyTorch's own attention becomes every target, in float and int8, with masks and without."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.models import store
from edgekit.targets import evaluate

TIME, FEATURES, CLASSES, WIDTH = 8, 6, ("a", "b", "c"), 16
LEAST_DB = {"fp32": 60, "int8": 15}


class Network(nn.Module):
    """`attend` between two dense layers."""

    def __init__(self, attend: nn.Module, mask: Tensor | None = None) -> None:
        super().__init__()
        self.first, self.attend, self.last = nn.Linear(FEATURES, WIDTH), attend, nn.Linear(WIDTH, len(CLASSES))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if isinstance(self.attend, nn.MultiheadAttention):
            found = self.attend(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        else:
            found = self.attend(x) if self.mask is None else self.attend(x, self.mask)
        return self.last((x + found).mean(1))


class Filled(nn.Module):
    """Attention written by hand, with the mask filled in."""

    def __init__(self, lowest: float) -> None:
        super().__init__()
        self.parts, self.lowest = nn.Linear(WIDTH, 3 * WIDTH), lowest

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.parts(x).chunk(3, -1)
        return (q @ k.transpose(1, 2) / 4).masked_fill(mask, self.lowest).softmax(-1) @ v


def causal() -> Tensor:
    return torch.triu(torch.ones(TIME, TIME, dtype=torch.bool), 1)


def layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 4, 32, batch_first=True)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MultiheadAttention": lambda: Network(nn.MultiheadAttention(WIDTH, 4, batch_first=True)),
    "MultiheadAttention with a mask": lambda: Network(nn.MultiheadAttention(WIDTH, 4, batch_first=True), causal()),
    "TransformerEncoderLayer": lambda: Network(layer()),
    "TransformerEncoder with a mask": lambda: Network(
        nn.TransformerEncoder(layer(), 2), nn.Transformer.generate_square_subsequent_mask(TIME)
    ),
    "filled with -inf": lambda: Network(Filled(-torch.inf), causal()),
    "filled with -1e9": lambda: Network(Filled(-1e9), causal()),
}


QUICK = {
    ("MultiheadAttention", "openvino"),
    ("MultiheadAttention with a mask", "onnx"),
    ("TransformerEncoderLayer", "onnx"),
    ("TransformerEncoder with a mask", "tflite"),
    ("TransformerEncoder with a mask", "openvino"),
    ("filled with -inf", "tflite"),
    ("filled with -inf", "openvino"),
    ("filled with -1e9", "onnx"),
}
"""Each network on a target, and each target with a mask; the other pairs belong to `make long`."""
CASES = [
    pytest.param(name, target, marks=[] if (name, target) in QUICK else pytest.mark.long)
    for name in NETWORKS
    for target in ("openvino", "onnx", "tflite")
]


def network(name: str) -> nn.Module:
    return NETWORKS[name]().eval()


@pytest.mark.parametrize(("name", "target"), CASES)
def test_every_target_takes_it(name: str, target: str, tmp_path: Path) -> None:
    spec = store.ModelSpec(
        builder=f"{__name__}:network",
        kwargs={"name": name},
        input_shape=(TIME, FEATURES),
        num_classes=len(CLASSES),
        classes=CLASSES,
        raw={"kind": "window", "shape": [TIME, FEATURES], "dtype": "float32"},
    )
    store.save(tmp_path / "model", store.build(spec, seed=1), spec)
    x = np.random.default_rng(0).normal(size=(24, TIME, FEATURES)).astype(np.float32)
    expected = evaluate.torch_outputs(tmp_path / "model", x)
    converter = importlib.import_module(f"edgekit.targets.{target}.convert")
    for precision, least_db in LEAST_DB.items():
        files = converter.convert(tmp_path / "model", precision, x, tmp_path / precision)
        found = evaluate.file_outputs(precision, target, tmp_path / precision, files, x)
        assert 10 * np.log10((expected**2).sum() / ((found - expected) ** 2).sum()) > least_db
