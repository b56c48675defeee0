"""Pruning never ends a run: what cannot be cut keeps its width, and a student that cannot be cut at all goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.data import Data, Split
from edgekit.models import store
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.report.sections import pruning
from edgekit.stages import prune
from edgekit.stages.prune import PruneConfig, structured, torch_pruning_fixes
from edgekit.stages.prune.netadapt import NetAdaptPruner
from edgekit.stages.prune.tuner import Tuner
from tests.stages.prune.counting_clock import Counter
from tests.stages.quantize.conftest import decided

NETWORKS = "tests.stages.prune.networks"
PINNED = {"lenet": "conv2", "pixel_shuffle": "0", "normalized": "4",
          "transformer": "encoder.linear2"}  # fmt: skip
"""Of a network what a trial finds that breaks it."""
UNCUT = {**dict.fromkeys(("lstm", "bidirectional", "shuffle", "grouped_transpose"), "breaks wherever it is cut"),
         "gru": "has no convolution, dense or LSTM layer before its outputs"}  # fmt: skip
WINDOWS = ("lstm", "bidirectional", "gru", "transformer")
FAST = {"epochs": 1, "steps": 2, "sparsity_steps": 1, "measure": False, "threads": 1, "batch_size": 32,
        "learning_rate": 0.001, "budget": {"accuracy_drop_pp": 100.0}, "tune_with": "labels"}  # fmt: skip


def data(network: str) -> Data:
    shape = (16, 3) if network in WINDOWS else (32, 32, 3)
    random, classes = np.random.default_rng(0), tuple("abc")

    def split(count: int) -> Split:
        return Split(random.normal(size=(count, *shape)).astype(np.float32), np.arange(count) % 3)

    kind: Any = "image" if len(shape) == 3 else "window"
    return Data(split(32), split(12), split(4), classes, kind, digest="synthetic")


def source(network: str, root: Path) -> tuple[Artifact, store.ModelSpec, Data]:
    """What distill leaves where this network is the student, untrained."""
    given, found = data(network), None
    spec = spec_for(given, f"{NETWORKS}:{network}", {}, [])
    for name in ("profile", "distill"):
        out = artifacts.begin(root / name)
        store.save(out / "model", store.build(spec), spec)
        artifacts.write_json(out / "decision.json", decided())
        found = artifacts.seal(out, stage=name, source=found, data_digest=given.digest, config={}, metrics={})
    assert found is not None
    return found, spec, given


def ran(network: str, root: Path, **more: Any) -> Artifact:
    found, _, given = source(network, root)
    return prune.run(found, given, PruneConfig.model_validate({**FAST, **more}), root / ".prune")


@pytest.mark.parametrize("network", [*PINNED, *UNCUT, "attention"])
def test_the_stage_ends_well_whatever_can_be_cut(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ran(network, tmp_path, ratio=0.4)
    kept, sparse = found.metrics["structured"], found.metrics["unstructured"]
    assert sparse["kept_step"] == 1
    for folder in ("model", "sparse"):
        module, spec = open_model(found, folder)
        assert module(store.random_sample(spec)).shape == (1, 3)
    output = capsys.readouterr().out
    assert set(found.metrics["notes"]) <= set(output.splitlines())
    if network in UNCUT:
        assert kept["kept_step"] == 0
        assert kept["reason"].startswith("nothing was removed: ")
        assert f"{NETWORKS}:{network} {UNCUT[network]}" in kept["reason"]
        assert len(found.metrics["structured_steps"]) == 1
    else:
        assert kept["kept_step"] == 2
        assert found.metrics["structured_steps"][2]["parameters"] < found.metrics["structured_steps"][0]["parameters"]
    if network in PINNED:
        assert found.metrics["notes"] == [
            f"prune: kept at full width, because the network breaks otherwise: {PINNED[network]}"
        ]


def test_the_trial_comes_before_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    trial = structured.probe
    monkeypatch.setattr(structured, "probe", lambda *given: order.append("tried") or trial(*given))
    monkeypatch.setattr(Tuner, "tune", lambda *_, **__: order.append("trained"))
    ran("lenet", tmp_path)
    assert order == ["tried", "trained", "trained", "trained"]


@pytest.mark.parametrize("network", ["lenet", "lstm"])
def test_by_time_too_no_cut_breaks_the_network(network: str, tmp_path: Path) -> None:
    _, spec, given = source(network, tmp_path)
    config = PruneConfig.model_validate({**FAST, "structured": "latency", "latency_ratio": 0.8})
    module = store.build(spec)
    found = structured.probe(module, spec, config)
    pruner = NetAdaptPruner(spec, given, config, Counter(spec.input_shape), lambda *_: None, None, found)
    for _ in pruner.steps(module):
        assert module(store.random_sample(spec)).shape == (1, 3)
    assert bool(pruner.cuts) == (network == "lenet")
    assert not {row["group"] for row in pruner.rows} & {"conv2"}


def test_a_step_that_breaks_the_network_after_all_is_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where channels are ranked over the network, what goes depends on the weights: a trial cannot know it all."""
    _, spec, given = source("lenet", tmp_path)
    config = PruneConfig.model_validate(FAST)
    made = structured.steps(store.build(spec), spec, config, given.train, structured.ProbeResult())
    assert list(made) == []
    assert capsys.readouterr().out.startswith(
        f"prune: no step beyond 0: prune: {NETWORKS}:lenet cannot be cut in this way"
    )


def test_a_search_that_takes_too_long_leaves_the_student_uncut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, spec, _ = source("lenet", tmp_path)
    times = iter([0.0, *[torch_pruning_fixes.LIMIT_S + 1] * 1000])
    monkeypatch.setattr(torch_pruning_fixes.time, "monotonic", lambda: next(times))
    found = structured.probe(store.build(spec), spec, PruneConfig.model_validate(FAST))
    assert "not found in time" in found.refused


@pytest.mark.parametrize("options", [{"measure": False}, {"measure": True}])
def test_prune_can_be_switched_off(options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ran("lenet", tmp_path, enabled=False, **options)
    assert "prune: the student goes on unpruned: prune: false in the config" in capsys.readouterr().out.splitlines()
    student = found.ancestor("distill")
    for way, folder in (("structured", "model"), ("unstructured", "sparse")):
        assert found.metrics[way]["reason"] == "nothing was removed: prune: false in the config"
        assert found.metrics[way]["kept_step"] == 0
        assert found.files[f"{folder}/weights.safetensors"] == student.files["model/weights.safetensors"]
    assert len(pruning.table(found).rows) == 2
    assert "nothing was removed" in pruning.speed_table(found).title
    assert json.loads(found.file("decision.json").read_text())["structured"]["inside_budget"]


def test_a_network_without_layers_to_zero_goes_on_without_zeros(tmp_path: Path) -> None:
    found = ran("lenet", tmp_path, sparsity_layers="pointwise")
    [note] = [text for text in found.metrics["notes"] if "sparsity_layers" in text]
    assert note == f"prune.sparsity_layers: got pointwise, and {NETWORKS}:lenet has no such layer; write all"
    assert found.metrics["unstructured"]["reason"] == f"nothing was removed: {note}"
