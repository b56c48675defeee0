"""Layers under the roof: their counts are those of the network, their side is what their intensity says."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from edgekit.models.cost import OUTSIDE, cost, layer_costs
from edgekit.report.sections import profile
from edgekit.stages.profile.roofline import layer_times, roofline

MACHINE = {"gmacs_per_s": 100.0, "int8_gmacs_per_s": 400.0, "gbytes_per_s": 10.0}
PAUSE_S = 0.002


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
    assert [row.layer for row in rows] == ["conv", "head", OUTSIDE]
    assert rows[-1].macs == rows[-1].bytes == 0
    whole = cost(module, (4, 8, 8))
    assert sum(row.macs for row in rows) == whole.macs
    assert whole.layers == 3, "calls"
    conv = rows[0]
    assert conv.macs == 2 * 64 * 4 * 4 * 9
    feature, weights = 4 * 64 * 4, (4 * 4 * 9 + 4) * 4
    assert conv.bytes == 2 * (2 * feature + weights)
    assert whole.activation_bytes == 4 * feature + feature + 5 * 4
    assert whole.weight_bytes == weights + (3 * 3 + 3) * 4 + (256 * 5 + 5) * 4, "the unused are there too"


def test_intensity_decides_the_side() -> None:
    module = Twice().eval()
    rows = {row["layer"]: row for row in roofline(module, torch.zeros(1, 4, 8, 8), MACHINE, 3)}
    assert rows["head"]["bound"] == "memory", "each weight of a dense layer is used once"
    assert rows["head"]["roof_gmacs_per_s"] == pytest.approx(rows["head"]["intensity"] * 10.0)
    steep = {"gmacs_per_s": 0.001, "gbytes_per_s": 10.0}
    found = roofline(module, torch.zeros(1, 4, 8, 8), steep, 3)
    assert [row["bound"] for row in found] == ["compute", "compute", None]
    assert found[0]["roof_share"] == pytest.approx(found[0]["gmacs_per_s"] / found[0]["roof_gmacs_per_s"])


class Slow(nn.Conv2d):
    """A convolution that never takes less than `PAUSE_S`; its first two calls take much longer."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        time.sleep(PAUSE_S if self.calls > 2 else 50 * PAUSE_S)
        return super().forward(x)


def test_a_shared_layer_has_the_time_of_all_its_calls() -> None:
    """As it has their multiply-adds: else it would seem to be twice as fast as two layers that do the same."""
    shared, x = Slow(4, 4, 3, padding=1), torch.zeros(1, 4, 8, 8)
    one = {row["layer"]: row for row in roofline(nn.Sequential(shared, shared).eval(), x, MACHINE, 5)}
    separate = nn.Sequential(Slow(4, 4, 3, padding=1), Slow(4, 4, 3, padding=1)).eval()
    first, second, _ = roofline(separate, x, MACHINE, 5)
    assert set(one) == {"0", OUTSIDE}
    assert one["0"]["macs"] == first["macs"] + second["macs"]
    assert one["0"]["ms"] >= 2 * PAUSE_S * 1e3
    assert one["0"]["gmacs_per_s"] < 1.5 * first["gmacs_per_s"]


def test_the_first_calls_are_not_timed() -> None:
    times_ms = layer_times(nn.Sequential(Slow(4, 4, 3)).eval(), torch.zeros(1, 4, 8, 8), 1)
    assert PAUSE_S * 1e3 <= times_ms["0"] < 25 * PAUSE_S * 1e3


class Loose(nn.Module):
    """Its arithmetic is in no layer: a convolution as a function, a matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.rand(4, 4, 3, 3))
        self.matrix = nn.Parameter(torch.rand(4 * 8 * 8, 5))
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(nn.functional.conv2d(x, self.kernel, padding=1)).flatten(1) @ self.matrix


class Recurrent(nn.Module):
    """A layer whose multiply-adds torch does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x[:, 0])[0][:, -1]  # type: ignore[no-any-return]


def figure_text(rows: list[dict[str, object]]) -> str:
    figure = profile.roofline_figure(rows, MACHINE)
    figure.canvas.draw()
    return " ".join(text.get_text() for text in figure.axes[0].texts)


def test_arithmetic_outside_layers_is_reported_and_stops_nothing() -> None:
    module, x = Loose().eval(), torch.zeros(1, 4, 8, 8)
    rows = {row["layer"]: row for row in roofline(module, x, MACHINE, 3)}
    assert rows["relu"]["macs"] == 0
    assert rows[OUTSIDE]["macs"] == 64 * 4 * 4 * 9 + 256 * 5 == cost(module, (4, 8, 8)).macs
    assert rows[OUTSIDE]["ms"] > 0
    assert rows[OUTSIDE]["intensity"] is rows[OUTSIDE]["bound"] is None
    assert "100% of the multiply-adds" in figure_text(list(rows.values()))
    assert "not shown" not in figure_text(roofline(Twice().eval(), x, MACHINE, 3))


def test_a_network_without_multiply_adds_is_reported() -> None:
    rows = roofline(Recurrent().eval(), torch.zeros(1, 1, 4, 8), MACHINE, 3)
    assert [row["macs"] for row in rows] == [0, 0]
    assert "no multiply-adds were counted" in figure_text(rows)


def test_times_leave_no_hook_behind() -> None:
    module = Twice().eval()
    times_ms = layer_times(module, torch.zeros(1, 4, 8, 8), 3)
    assert set(times_ms) == {"conv", "head", OUTSIDE}
    assert times_ms["conv"] > 0 and times_ms["head"] > 0 and times_ms[OUTSIDE] >= 0
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
