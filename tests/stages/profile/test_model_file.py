"""The profile of a baseline that came as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.errors import ModelError
from edgekit.data import load
from edgekit.measure.forecast import BASELINE_RUNTIMES
from edgekit.models.files import TITLES
from edgekit.models.from_artifact import open_model
from edgekit.training import predict
from edgekit.training.teachers import model_file as files
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY, FinishedRun
from tests.models.files import trained

pytestmark = pytest.mark.zoo


def opened(config: Path, tmp_path: Path, settings: str = "") -> object:
    return open_stage("profile", {"config": str(config), "out": str(tmp_path / "runs"), "settings": settings})


@pytest.mark.parametrize("kind", TITLES)
def test_every_kind_of_file_is_profiled(
    kind: str, tiny_run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained.make(kind, tiny_run.folder / "profile/model", tmp_path / "made")
    found = opened(trained.config(model, tmp_path), tmp_path).run()  # type: ignore[attr-defined]
    assert f"{model.name} is {TITLES[kind]}: gives " in capsys.readouterr().out
    sealed, theirs = found.metrics, artifacts.load(tiny_run.folder / "profile").metrics
    _, spec = open_model(found)
    assert not sealed["trained_here"]
    if kind == "keras":
        assert sealed["validation_accuracy"] > 0.7 and spec.gives_probabilities
    else:
        assert abs(sealed["validation_accuracy"] - theirs["validation_accuracy"]) <= 0.01
        assert sealed["macs"] == theirs["macs"] and not spec.gives_probabilities
    way = sealed["ways"][0]
    assert way["way"] == BASELINE_RUNTIMES[spec.interpreter.partition(" ")[0]] and way["ratio"] == pytest.approx(1)
    assert 0.95 < sealed["session"]["covered"] <= 1.0001
    assert bool(sealed["operators"]) == spec.is_torch
    assert not any(row["bound"] for row in sealed["layers"]), "nobody sees what takes the time inside"
    assert sealed["diagnosis"]["text"].startswith("A process needs")


def test_a_file_that_ends_in_sigmoids_is_reported_and_gets_no_softmax(
    tiny_run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither here nor in its bundle; it teaches by the logits before them."""
    import onnx
    from onnx import helper

    path = trained.make("onnx", tiny_run.folder / "profile/model", tmp_path / "made")
    model = onnx.load(path)
    scores = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Sigmoid", [scores], ["each"]))
    model.graph.output[0].name = "each"
    onnx.save(model, path)
    found = opened(trained.config(path, tmp_path), tmp_path).run()  # type: ignore[attr-defined]
    assert f"{path.name} is an ONNX model: gives sigmoids of 10 classes" in capsys.readouterr().out
    module, spec = open_model(found)
    assert spec.gives_probabilities and spec.source is not None and not spec.source.probabilities
    theirs = artifacts.load(tiny_run.folder / "profile").metrics
    assert abs(found.metrics["validation_accuracy"] - theirs["validation_accuracy"]) <= 0.01
    own, _ = open_model(artifacts.load(tiny_run.folder / "profile"))
    x = load(load_plan(TINY).data).validation.x
    before = predict.logits(own, x, spec.preprocess)
    assert np.allclose(predict.logits(module, x, spec.preprocess), 1 / (1 + np.exp(-before)), atol=1e-4)
    taught = files.logits(files.open_file(path, spec.preprocess), x, classes=10, timeout_s=100)
    assert np.allclose(taught, before, atol=2e-2)


def test_a_file_that_knows_nothing_is_refused(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """Samples that are prepared otherwise than the network was trained with."""
    model = trained.make("onnx", tiny_run.folder / "profile/model", tmp_path / "made")
    config = trained.config(model, tmp_path, preprocess=[{"step": "scale", "factor": -100.0}])
    with pytest.raises(ModelError, match="net.onnx: .* on validation, and always naming one class would give"):
        opened(config, tmp_path).run()  # type: ignore[attr-defined]
    assert not (tmp_path / "runs/given/profile").exists()
