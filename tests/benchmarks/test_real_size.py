"""`python -m benchmarks.real_size`: the published networks, and a measurement of a tiny one. Speed is not tested."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from benchmarks import networks, real_size
from edgekit.models.reparameterize import merge_branches

PUBLISHED = {
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v4_small": 3_774_024,
    "efficientnet_lite0": 4_652_008,
    "efficientnet_lite1": 5_416_680,
    "efficientnet_lite2": 6_092_072,
    "resnet18": 11_689_512,
    "repvgg_a0": 8_309_384,  # without the branches that only training needs
}
TINY = {"tiny": networks.NETWORKS["tiny"], "detector_tiny": ("edgekit.models.detector:detector", {"width": 4})}


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_are_the_published_ones(name: str) -> None:
    builder, kwargs = real_size.NETWORKS[name]
    module, _, function = builder.partition(":")
    network = getattr(importlib.import_module(module), function)((3, 224, 224), 1000, **kwargs)
    assert sum(each.numel() for each in merge_branches(network).parameters()) == PUBLISHED[name]


def test_a_run_measures_every_file_and_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real_size, "NETWORKS", TINY)
    monkeypatch.setattr(real_size, "HOME", tmp_path / "made")
    monkeypatch.setattr(networks, "HOME", tmp_path / "made")
    options = ["--targets", "onnx,openvino", "--precisions", "fp32", "--sizes", "64", "--rounds", "10", "--calls", "10"]
    command = ["real_size", *options, "--starts", "1", "--networks", ",".join(TINY), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    real_size.main()
    assert "## 64x64: random weights, one thread, batch 1" in capsys.readouterr().out
    [experiment] = json.loads((tmp_path / "out" / "report.json").read_text())["experiments"]
    assert [row[:2] for row in experiment["rows"]] == [[name, "fp32"] for name in TINY for _ in range(2)]
    assert [row[2].split()[0] for row in experiment["rows"][:2]] == ["onnxruntime", "openvino"]
    assert not experiment["missing"] and all(float(row[-1].replace(",", "")) > 10 for row in experiment["rows"])
    raw = experiment["rounds"]["tiny-fp32-onnx"]
    assert len(raw["timed"]["samples_ns"]) >= 10 and raw["starts"][0]["selftest"]["ok"] and raw["seen"]["seconds"] > 0


def test_an_unknown_network_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["real_size", "--networks", "resnet19"])
    with pytest.raises(SystemExit, match="2"):
        real_size.main()
    assert "--networks: resnet19: unknown; use some of mobilenet_v2" in capsys.readouterr().err
