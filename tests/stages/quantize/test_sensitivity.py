"""Which layer int8 hurts."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.data import Split
from edgekit.models import store
from edgekit.stages.quantize import ptq
from edgekit.stages.quantize.ptq import quantized_layers
from edgekit.stages.quantize.studies import sensitivity, snr_db

from .conftest import PrunedRun


def test_every_layer_with_weights_has_its_row_and_the_worst_comes_first(pruned_run: PrunedRun) -> None:
    module, spec = store.load(pruned_run.source.path / "model")
    with torch.no_grad():
        # one outlier in each filter: its scale leaves the other weights a handful of levels
        module[1][1][0].weight[:, 0] = 40 * module[1][1][0].weight.abs().max()
    quantized = ptq.quantize(module, ptq.calibration_inputs(pruned_run.data.calibration.x, spec.preprocess, 50))
    before = {name: value.clone() for name, value in quantized.state_dict().items()}
    validation = pruned_run.data.validation
    table = sensitivity(module, quantized, validation, spec.preprocess, 100)
    weighted = {name for name, part in module.named_modules() if isinstance(part, (nn.Conv2d, nn.Linear))}
    assert {row["layer"] for row in table["layers"]} == weighted
    assert table["samples"] == 100
    ratios = [row["snr_db"] for row in table["layers"]]
    assert ratios == sorted(ratios) and ratios[-1] > 20
    assert all(value.equal(before[name]) for name, value in quantized.state_dict().items())


def test_the_broken_layer_tops_the_table(pruned_run: PrunedRun) -> None:
    module, spec = store.load(pruned_run.source.path / "model")
    inputs = ptq.calibration_inputs(pruned_run.data.calibration.x, spec.preprocess, 50)
    quantized = ptq.quantize(module, inputs)
    broken = quantized.get_submodule("__nncf_hooks.pre_hooks.network/1/1/0/conv2d/0__1.0")
    with torch.no_grad():
        broken._scale_param_storage.mul_(100)  # a weight range far too wide: few levels are left
    validation = pruned_run.data.validation
    table = sensitivity(module, quantized, validation, spec.preprocess, 200)
    worst, second = table["layers"][:2]
    assert worst["layer"] == "1.1.0" and worst["snr_db"] < second["snr_db"] - 10
    assert worst["drop_pp"] > 10 > second["drop_pp"]


class Branches(nn.Module):
    """A residual sum, a pooled branch and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.twice = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.twice(torch.relu(self.twice(x))))
        return self.head(torch.max_pool2d(x, 4).flatten(1))


def test_quantizers_are_found_through_pooling_sums_and_shared_layers() -> None:
    torch.manual_seed(0)
    inputs = [torch.rand(1, 1, 16, 16) for _ in range(8)]
    module = Branches().eval()
    quantized = ptq.quantize(module, inputs)
    layers = {layer.name: layer for layer in quantized_layers(quantized, inputs[0])}
    assert list(layers) == ["stem", "twice", "head"]
    assert [layer.kind for layer in layers.values()] == ["conv2d", "conv2d", "linear"]
    held = set(dict(quantized.named_modules()))
    assert all(set(layer.quantizers) <= held and len(layer.quantizers) >= 2 for layer in layers.values())
    assert len(layers["twice"].quantizers) >= 3  # its weights, and the inputs of both uses
    assert any("relu" in name or "add" in name for name in layers["head"].quantizers)


def test_one_layer_of_a_one_layer_network_is_the_whole_network() -> None:
    torch.manual_seed(0)
    module = nn.Linear(16, 4).eval()
    x = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    quantized = ptq.quantize(copy.deepcopy(module), ptq.calibration_inputs(x, [], 64))
    with torch.no_grad():
        quantized.network.load_state_dict(module.state_dict())  # type: ignore[operator,union-attr]
        whole = snr_db(module(torch.from_numpy(x)).numpy(), quantized(torch.from_numpy(x)).numpy())
    table = sensitivity(module, quantized, Split(x, np.zeros(64, np.int64)), [], 64)
    assert [row["snr_db"] for row in table["layers"]] == [pytest.approx(whole, abs=0.01)]


def test_snr_db() -> None:
    ones = np.ones((4, 5), np.float32)
    assert snr_db(ones, ones) == 200.0
    assert snr_db(ones, ones * np.float32(1.1)) == pytest.approx(20.0, abs=1e-4)
    assert snr_db(ones, ones * 0) == pytest.approx(0.0)
    assert snr_db(ones * 0, ones) == -200.0


def test_rare_anomalies_are_never_left_out() -> None:
    """Evenly over the split, ten samples of six hundred would miss the only one, and nothing could be measured."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, 6)).astype(np.float32)
    x[1] += 5
    split = Split(x, (np.arange(600) == 1).astype(np.int64))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6)).eval()
    quantized = ptq.quantize(module, ptq.calibration_inputs(x[2:], [], 20))
    table = sensitivity(module, quantized, split, [], 10, "anomaly")
    assert table["samples"] == 11 and table["float_accuracy"] > 0.5
    assert all(np.isfinite(row["drop_pp"]) for row in table["layers"])
