"""The profile stage on the artifacts of a real run, and with weights that the user brings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from safetensors.numpy import load_file, save_file

from edgekit.core import artifacts
from edgekit.core.errors import ModelError
from edgekit.models.from_artifact import open_model
from edgekit.report.sections import profile
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY, FinishedRun


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun) -> artifacts.Artifact:
    return artifacts.load(tiny_run.folder / "profile")


def test_percentiles_are_in_order_and_parts_add_up(sealed: artifacts.Artifact) -> None:
    latency = sealed.metrics["latency"]
    for part in latency.values():
        assert 0 < part["p50_ms"] <= part["p90_ms"] <= part["p95_ms"] <= part["p99_ms"]
    assert sealed.metrics["session"]["covered"] == pytest.approx(1, abs=0.02)


def test_operators_are_those_of_the_network_slowest_first(sealed: artifacts.Artifact) -> None:
    rows = sealed.metrics["operators"]
    times = [row["self_ms"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert any("conv" in row["operator"] for row in rows)


def test_what_was_left_out_says_so(sealed: artifacts.Artifact, tiny_run: FinishedRun) -> None:
    ways = {row["way"]: row for row in sealed.metrics["ways"]}
    assert ways["torch.compile"]["reason"] == "left out: profile.compiling is false"
    assert ways["LiteRT"]["reason"] == "left out: profile.runtimes is false"
    assert ways["PyTorch eager"]["low_ms"] <= ways["PyTorch eager"]["p50_ms"] <= ways["PyTorch eager"]["high_ms"]
    assert profile.predicted_rows(artifacts.load(tiny_run.folder / "benchmark")) == []


def test_cost_is_that_of_the_network(sealed: artifacts.Artifact) -> None:
    module, _ = open_model(sealed)
    assert sealed.metrics["parameters"] == sum(parameter.numel() for parameter in module.parameters())
    assert sealed.metrics["trained_here"]


def config_with(tmp_path: Path, weights: str) -> Path:
    values = yaml.safe_load(TINY.read_text())
    values["model"]["weights"] = weights
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_weights_the_user_brings_are_profiled_untrained(
    sealed: artifacts.Artifact, tmp_path: Path, tiny_run: FinishedRun
) -> None:
    weights = tiny_run.folder / "profile/model/weights.safetensors"
    (tmp_path / "mine.safetensors").write_bytes(weights.read_bytes())
    config = config_with(tmp_path, "mine.safetensors")
    stage = open_stage("profile", {"config": str(config), "out": str(tmp_path / "runs"), "latency_calls": 20})
    found = stage.run()
    assert not found.metrics["trained_here"]
    assert found.metrics["validation_accuracy"] == sealed.metrics["validation_accuracy"]
    assert found.file("model/weights.safetensors").read_bytes() == weights.read_bytes()


def test_weights_that_do_not_fit_are_named_and_nothing_is_sealed(tmp_path: Path, tiny_run: FinishedRun) -> None:
    tensors = load_file(tiny_run.folder / "profile/model/weights.safetensors")
    first = next(name for name in tensors if name.endswith(".weight"))
    save_file({name: value for name, value in tensors.items() if name != first}, tmp_path / "mine.safetensors")
    config = config_with(tmp_path, "mine.safetensors")
    stage = open_stage("profile", {"config": str(config), "out": str(tmp_path / "runs")})
    with pytest.raises(ModelError, match=first.replace(".", r"\.")):
        stage.run()
    assert not (tmp_path / "runs/tiny/profile").exists()
    assert not list((tmp_path / "runs/tiny").glob(".profile*"))
