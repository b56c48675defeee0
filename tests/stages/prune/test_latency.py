"""Latency: every step is timed on the targets, and the report follows from the figures."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConversionError
from edgekit.data import Data
from edgekit.measure.latency import FailedFile, TimedFile, TimingResult
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.report.sections import pruning
from edgekit.stages.prune import PruneConfig, latency, structured
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.stages.prune.unstructured import steps as zeroing
from tests.stages.prune.test_structured import NO_SAMPLES, spec
from tests.targets.convert_runs import colours

ROUNDS = 12
Row = dict[str, Any]


def timed(model: str, p50_ms: float, size: int = 1000, noise: float = 0.0, target: str = "onnx") -> TimedFile:
    rounds = p50_ms * np.exp(np.random.default_rng(len(model)).normal(0, noise, ROUNDS))
    return TimedFile(model, target, "fp32", size, size // 2, p50_ms, p50_ms, p50_ms, tuple(rounds))


def test_the_share_is_the_measured_speed_up_over_the_predicted_one() -> None:
    found = [timed("step0", 0.8), timed("step1", 0.4), timed("step2", 0.2), timed("sparse", 0.8)]
    rows = latency.step_speedups(found, [4000, 1600, 500])
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["predicted"] for row in rows] == pytest.approx([1.0, 2.5, 8.0])
    assert [row["measured"] for row in rows] == pytest.approx([1.0, 2.0, 4.0])
    assert [row["gain_share"] for row in rows] == pytest.approx([1.0, 0.8, 0.5])


def test_a_step_is_compared_with_the_student_on_its_own_target() -> None:
    found = [timed("step0", 0.8), timed("step0", 8.0, target="tflite"), timed("step1", 0.4), timed("sparse", 1.0)]
    found.append(timed("step1", 2.0, target="tflite"))
    assert {
        row["target"]: row["measured"] for row in latency.step_speedups(found, [2, 1]) if row["step"]
    } == pytest.approx({"onnx": 2.0, "tflite": 4.0})


def test_noise_leaves_an_interval_around_the_ratio() -> None:
    rows = latency.step_speedups([timed("step0", 0.8, noise=0.05), timed("step1 ", 0.4), timed("step1", 0.4)], [2, 1])
    assert rows[1]["measured_low"] < rows[1]["measured"] < rows[1]["measured_high"]


def test_zeros_are_held_against_the_student() -> None:
    (row,) = latency.sparse_speedups([timed("step0", 0.8), timed("step1", 0.1), timed("sparse", 0.4, size=600)])
    assert row["measured"] == pytest.approx(2.0)
    assert (row["dense_zipped_bytes"], row["sparse_zipped_bytes"]) == (500, 300)


@pytest.fixture(scope="module")
def measured() -> tuple[Row, list[Row]]:
    """A tiny network, one step and its sparse twin, through the real converter and interpreter of one target."""
    described = spec("ds_cnn:ds_cnn", width=16, blocks=1, stem_stride=2).model_copy(update={"input_shape": (3, 8, 8)})
    config = PruneConfig.model_validate(
        {"ratio": 0.5, "steps": 1, "sparsity": 0.8, "sparsity_steps": 1, "rounds": ROUNDS, "calls_per_round": 5}
        | {"targets": ["onnx"]}
    )
    data = Data(colours(8, 0), colours(8, 1), colours(8, 2), described.classes, "image", digest="synthetic")
    student = store.build(described)
    smaller, sparse = copy.deepcopy(student), copy.deepcopy(student)
    for technique, module in ((structured.steps, smaller), (zeroing, sparse)):
        for _ in technique(module, described, config, NO_SAMPLES):
            pass
    assert measured_sparsity(sparse) > 0.7
    macs = [cost(module, described.input_shape).macs for module in (student, smaller)]
    return latency.time_steps([student, smaller], sparse, macs, described, data, config)


def test_every_network_is_timed_in_both_precisions(measured: tuple[Row, list[Row]]) -> None:
    times, networks = measured
    both = {"fp32", "int8"}
    assert {(row["model"], row["precision"]) for row in networks} == {
        (model, precision) for model in ("step0", "step1", "sparse") for precision in both
    }
    assert all(len(row["round_p50s_ms"]) == ROUNDS and row["p50_ms"] > 0 for row in networks)
    assert {(row["step"], row["precision"]) for row in times["steps"]} == {(s, p) for s in (0, 1) for p in both}
    assert {row["precision"] for row in times["sparse"]} == both
    assert all(row["predicted"] > 1.2 for row in times["steps"] if row["step"])
    assert json.loads(json.dumps(times)) == times


def test_zeros_compress_though_the_files_stay_as_long(measured: tuple[Row, list[Row]]) -> None:
    row = next(row for row in measured[0]["sparse"] if row["precision"] == "fp32")
    assert row["sparse_bytes"] == row["dense_bytes"]
    assert row["sparse_zipped_bytes"] < row["dense_zipped_bytes"]


def test_what_one_target_cannot_run_is_reported_and_the_rest_is_compared_with_its_own_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [FailedFile("step0", "tflite", "fp32", "no such operator"), FailedFile("step1", "onnx", "int8", "wrong")]
    found = [timed(name, 1.0) for name in ("step0", "step1", "sparse")]
    found += [timed(name, 1.0, target="tflite") for name in ("step1", "sparse")]

    def measure(*others: Any) -> TimingResult:
        with others[-1]:
            return TimingResult(found, lost)

    monkeypatch.setattr(latency, "measure", measure)
    described = spec("ds_cnn:ds_cnn", width=8, blocks=1)
    module = store.build(described)
    data = Data(NO_SAMPLES, NO_SAMPLES, NO_SAMPLES, described.classes, "image", digest="synthetic")
    times, networks = latency.time_steps([module, module], module, [2, 1], described, data, PruneConfig())
    assert [(row["step"], row["target"]) for row in times["steps"]] == [(0, "onnx"), (1, "onnx")]
    assert [row["target"] for row in times["sparse"]] == ["onnx"]
    assert [row["reason"] for row in times["left_out"]] == ["no such operator", "wrong"]
    assert len(networks) == 5
    assert "prune: not timed: step0, tflite, fp32: no such operator" in capsys.readouterr().out


def test_a_network_that_no_target_takes_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> list[TimedFile]:
        raise ConversionError("step0 for onnx: no conversion rule")

    monkeypatch.setattr(latency, "measure", refuse)
    described = spec("ds_cnn:ds_cnn", width=8, blocks=1)
    module = store.build(described)
    data = Data(NO_SAMPLES, NO_SAMPLES, NO_SAMPLES, described.classes, "image", digest="synthetic")
    times, networks = latency.time_steps([module], module, [1], described, data, PruneConfig())
    assert times == {"failed": "step0 for onnx: no conversion rule"}
    assert networks == []


def sealed(folder: Path, times: Row | None) -> Artifact:
    """An artifact as the stage leaves it, as far as tables and pictures look."""
    out = artifacts.begin(folder / "prune")
    described = spec("resnet:resnet8")
    module = store.build(described)
    for _ in zeroing(module, described, PruneConfig.model_validate({"sparsity_steps": 1}), NO_SAMPLES):
        pass
    store.save(out / "sparse", module, described)
    steps = [
        {"step": step, "macs": 4_000_000 >> step, "validation_accuracy": 0.95 - 0.01 * step, "sparsity": 0.7 * step}
        for step in range(2)
    ]
    latency_found = None if times is None else {**times, "sparse_step": 1}
    metrics = {"structured_steps": steps, "unstructured_steps": steps, "latency": latency_found}
    return artifacts.seal(out, stage="prune", source=None, data_digest="d", config={}, metrics=metrics)


def test_tables_and_pictures_show_what_was_measured(tmp_path: Path, measured: tuple[Row, list[Row]]) -> None:
    artifact = sealed(tmp_path, measured[0])
    table = pruning.speed_table(artifact)
    assert list(table.columns) == ["step", "MACs", "predicted", "onnx fp32", "onnx int8", "best"]
    assert len(table.rows) == 1
    zeros = pruning.zeros_table(artifact)
    assert [row[0] for row in zeros.rows] == ["onnx fp32", "onnx int8"]
    assert "70% of the weights are zero" in zeros.title
    steps = pruning.latencies(artifact)["steps"]
    assert len(pruning.cost_figure(artifact.metrics["structured_steps"], steps, 0.9).axes) == 2
    assert pruning.speed_figure(steps).axes


@pytest.mark.parametrize(
    ("times", "title"),
    [(None, "Not measured: prune.measure is false"), ({"failed": "no rule"}, "Not measured: no rule")],
)
def test_tables_say_that_nothing_was_measured(times: Row | None, title: str, tmp_path: Path) -> None:
    artifact = sealed(tmp_path, times)
    assert (pruning.speed_table(artifact).title, pruning.speed_table(artifact).rows) == (title, [])
    assert pruning.zeros_table(artifact).title == title
    assert pruning.cost_figure(artifact.metrics["structured_steps"], [], 0.9).axes
    assert pruning.speed_figure([]).axes


def test_the_map_of_zeros_is_that_of_the_weights(tmp_path: Path) -> None:
    artifact = sealed(tmp_path, None)
    layers = pruning.patterns(artifact)
    tensors = {name: value for name, value in store.load(artifact.path / "sparse")[0].state_dict().items()}
    assert len(layers) == sum(value.ndim > 1 for value in tensors.values())
    for row in layers:
        weight = tensors[f"{row['name']}.weight"]
        assert row["zeros"] == pytest.approx(float((weight == 0).double().mean()))
        corner = torch.from_numpy(row["nonzero"])
        assert torch.equal(corner, (weight.flatten(1) != 0)[: corner.shape[0], : corner.shape[1]])
    overall = sum(row["zeros"] * row["weights"] for row in layers) / sum(row["weights"] for row in layers)
    assert overall == pytest.approx(0.7, abs=0.01)
    assert len(pruning.patterns_figure(layers).axes) == 4 + 1
    assert len(pruning.patterns_figure(layers[:2]).axes) == 2 + 1
