"""A float network as it comes on every runtime, with each one's operators; failures are reported, and stop nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.measure import forecast
from edgekit.models import store
from edgekit.stages.profile import runtimes

X = np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32)
EVERY = {"PyTorch eager", "TorchScript", "LiteRT", "OpenVINO", "ONNX Runtime"}


def save(folder: Path, builder: str, kwargs: dict[str, int]) -> torch.nn.Module:
    spec = store.ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=(1, 8, 8),
        num_classes=3,
        classes=("a", "b", "c"),
        raw={"kind": "image", "shape": [8, 8, 1], "dtype": "uint8"},
    )
    module = store.build(spec)
    store.save(folder, module, spec)
    return module


def test_every_way_is_timed_and_looked_into(tmp_path: Path) -> None:
    module = save(tmp_path / "model", "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1})
    rows, inside, _ = runtimes.measure(
        module, tmp_path / "model", X, 20, 5, compiling=False, runtimes=True, timeout_s=600
    )
    timed = [row for row in rows if "reason" not in row]
    assert {row["way"] for row in timed} == EVERY
    for row in timed:
        assert 0 < row["low_ms"] <= row["p50_ms"] <= row["high_ms"], row
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert set(inside) == {"tflite", "openvino", "onnx"}
    shares = {target: sum(row["share"] for row in found) for target, found in inside.items()}
    whole_us = {"tflite": shares.pop("tflite")}  # LiteRT counts whole microseconds: of this network there may be none
    assert shares == pytest.approx({"openvino": 1, "onnx": 1})
    assert whole_us["tflite"] in (0, pytest.approx(1))
    machine = {"gmacs_per_s": 10.0, "int8_gmacs_per_s": 40.0, "gbytes_per_s": 5.0}
    forecasts = forecast.runtime_forecasts(timed, {"macs": 1000, "moved": 1000}, machine)
    assert set(forecasts) == {"LiteRT", "OpenVINO", "ONNX Runtime"}


@pytest.mark.long
@pytest.mark.needs(program="g++")
def test_a_compiled_network_is_timed(tmp_path: Path) -> None:
    module = save(tmp_path / "model", "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1})
    rows, _, _ = runtimes.measure(module, tmp_path / "model", X, 20, 5, compiling=True, runtimes=False, timeout_s=600)
    [compiled] = [row for row in rows if row["way"] == "torch.compile"]
    assert 0 < compiled["low_ms"] <= compiled["p50_ms"] <= compiled["high_ms"], compiled


def test_a_network_that_no_converter_takes_is_still_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "TARGETS", ("onnx",))  # the quickest of the converters that refuse it
    module = save(tmp_path / "model", f"{__name__}:unusual", {})
    rows, inside, _ = runtimes.measure(
        module, tmp_path / "model", X, 20, 5, compiling=False, runtimes=True, timeout_s=600
    )
    ways = {row["way"]: row for row in rows}
    assert ways["PyTorch eager"]["p50_ms"] > 0
    reason = ways["ONNX Runtime"]["reason"]
    assert "svd" in reason and "\n" not in reason, reason
    assert "onnx" not in inside


class Unusual(torch.nn.Module):
    """A decomposition that runtimes on devices do not have."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.linalg.svdvals(x[:, 0]))
        return y


def unusual(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    """Built by name, as a user's network is."""
    return Unusual(num_classes)
