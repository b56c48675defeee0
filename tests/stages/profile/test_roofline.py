"""Layers under the roof: their counts are those of the network, their side is what their intensity says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgekit.models.cost import cost, layer_costs
from edgekit.stages.profile.roofline import layer_times, roofline

MACHINE = {"gmacs_per_s": 100.0, "gbytes_per_s": 10.0}


class Twice(nn.Module):
    """One layer that is called twice, and one that never is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(4 * 8 * 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.relu(self.conv(self.conv(x))).flatten(1))
        return y


def test_the_layers_make_the_whole() -> None:
    module = Twice()
    rows = layer_costs(module, (4, 8, 8))
    assert [row.layer for row in rows] == ["conv", "head"]
    assert sum(row.macs for row in rows) == cost(module, (4, 8, 8)).macs
    conv = rows[0]
    assert conv.macs == 2 * 64 * 4 * 4 * 9
    feature, weights = 4 * 64 * 4, (4 * 4 * 9 + 4) * 4
    assert conv.bytes == 2 * (2 * feature + weights)


def test_intensity_decides_the_side() -> None:
    module = Twice().eval()
    rows = {row["layer"]: row for row in roofline(module, torch.zeros(1, 4, 8, 8), MACHINE, 3)}
    assert rows["head"]["bound"] == "memory", "each weight of a dense layer is used once"
    assert rows["head"]["roof_gmacs_per_s"] == pytest.approx(rows["head"]["intensity"] * 10.0)
    steep = {"gmacs_per_s": 0.001, "gbytes_per_s": 10.0}
    assert {row["bound"] for row in roofline(module, torch.zeros(1, 4, 8, 8), steep, 3)} == {"compute"}


def test_times_leave_no_hook_behind() -> None:
    module = Twice().eval()
    times_ms = layer_times(module, torch.zeros(1, 4, 8, 8), 3)
    assert set(times_ms) == {"conv", "head"}
    assert all(value > 0 for value in times_ms.values())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
