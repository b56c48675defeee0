"""Calibration inputs and what nncf makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.stages.quantize.ptq import calibration_inputs, evenly_spaced, quantize


def test_calibration_inputs_are_single_preprocessed_samples_in_the_networks_order() -> None:
    x = np.random.default_rng(0).integers(0, 256, (10, 4, 6, 3)).astype(np.uint8)
    inputs = calibration_inputs(x, [{"step": "scale", "factor": 0.5}], 4)
    assert [tuple(value.shape) for value in inputs] == [(1, 3, 4, 6)] * 4
    assert inputs[-1][0, 1, 2, 3] == x[9, 2, 3, 1] * 0.5
    assert len(calibration_inputs(x, [], 200)) == 10


@pytest.mark.parametrize(
    ("samples", "count", "expected"), [(5, 5, [0, 1, 2, 3, 4]), (9, 3, [0, 4, 8]), (3, 9, [0, 1, 2])]
)
def test_spread_covers_the_split(samples: int, count: int, expected: list[int]) -> None:
    assert evenly_spaced(np.zeros(samples), count).tolist() == expected


def test_the_network_is_left_as_it_was_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    quantized = quantize(module, [torch.rand(1, 1, 8, 8) for _ in range(5)])
    assert not quantized.training
    assert module.state_dict().keys() == before.keys()
    assert all(value.equal(before[name]) for name, value in module.state_dict().items())
    x = torch.rand(3, 1, 8, 8)
    assert not torch.equal(quantized(x), module(x))
    assert torch.allclose(quantized(x), module(x), atol=0.05)
    assert capfd.readouterr() == ("", "")


def test_a_network_nncf_cannot_run_is_the_users_error() -> None:
    with pytest.raises(ModelError, match="nncf cannot quantize this network"):
        quantize(nn.Linear(3, 2), [torch.rand(1, 4)])
