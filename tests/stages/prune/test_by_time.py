"""The whole stage where time decides what is cut: it stops at the budget, goes on after a kill, and can be followed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from torch import nn

from edgekit.core import artifacts, replay
from edgekit.core.artifacts import Artifact
from edgekit.core.config import TrainOptions
from edgekit.core.schema.pruning import RetrainedStep, TimedCut
from edgekit.data import Data, load, parse
from edgekit.measure import latency
from edgekit.models import store
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.report.sections import pruning
from edgekit.report.sections.pruning import table as prune_table
from edgekit.stages.prune import PruneConfig
from edgekit.stages.prune.stage import prune
from edgekit.stages.prune.tuner import Tuner
from edgekit.training.fit import fit
from edgekit.training.predict import evaluate
from tests.stages.prune import counting_clock
from tests.stages.quantize.conftest import decided

STEPS = [{"step": "scale", "factor": 1 / 255}]
OPTIONS = {"epochs": 4, "batch_size": 16, "learning_rate": 0.1, "augment": "none"}
GIVEN: dict[str, Any] = {
    "structured": "latency", "latency_ratio": 0.6, "steps": 2, "channel_multiple": 4, "epochs": 1, "batch_size": 16,
    "sparsity_steps": 1, "measure": False, "threads": 1, "targets": ["tflite"], "augment": "none",
    "tune_with": "labels",
}  # fmt: skip


SHORT = {"candidate_epochs": 1, "cuts_per_step": 1, "widths_per_group": 1, "channel_multiple": 8}


@pytest.fixture(scope="module")
def data() -> Data:
    return load(parse({"source": "digits", "size": 8, "limit": 400, "calibration_samples": 20})).withhold_test()


@pytest.fixture(scope="module")
def trained(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A run up to its distilled student, which is its baseline too."""
    root, found = tmp_path_factory.mktemp("trained"), None
    spec = spec_for(data, "edgekit.models.resnet:resnet", {"depth": 8, "width": 8}, STEPS)
    student = store.build(spec)
    fit(student, data, STEPS, TrainOptions.model_validate(OPTIONS), seed=0, threads=1)
    for name in ("profile", "distill"):
        out = artifacts.begin(root / name)
        store.save(out / "model", student, spec)
        artifacts.write_json(out / "decision.json", decided(None))
        config = OPTIONS if name == "distill" else {}
        found = artifacts.seal(out, stage=name, source=found, data_digest=data.digest, config=config, metrics={})
    assert found is not None
    return found


@pytest.fixture
def run(trained: Artifact, tmp_path: Path) -> Artifact:
    """A copy of it."""
    return artifacts.load(Path(shutil.copytree(trained.path.parent, tmp_path / "run")) / "distill")


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "time_models", counting_clock.measure)


def pruned(source: Artifact, data: Data, out: Path, allowed_pp: float, **more: Any) -> Artifact:
    config = PruneConfig.model_validate({**GIVEN, "budget": {"accuracy_drop_pp": allowed_pp}, **more})
    return prune(source, data, config, out)


def test_the_last_step_inside_the_budget_is_kept_and_its_cuts_are_recorded(run: Artifact, data: Data) -> None:
    found = pruned(run, data, run.path.parent / ".prune.kept", 100.0)
    rows = found.metrics["structured_steps"]
    assert found.metrics["structured"]["kept_step"] == len(rows) - 1 > 0
    assert [row["aimed"] for row in rows] == pytest.approx([1.0, 0.6**0.5, 0.6][: len(rows)])
    recorded = json.loads(found.file("decision.json").read_text())["measured"]
    assert recorded["cuts"] == [[list(cut) for cut in step] for step in recorded["cuts"]]
    module, spec = open_model(found)
    assert counting_clock.ticks(module, spec.input_shape) < counting_clock.ticks(open_model(run)[0], spec.input_shape)
    evidence = json.loads((found.path / "evidence" / "cuts.json").read_text())
    assert {cut["group"] for timing in evidence["timings"] for cut in timing["cuts"]} >= {
        group for step in recorded["cuts"] for group, _ in step
    }
    cut_rows = found.metrics["cuts"]
    assert cut_rows and all(set(row) == set(get_type_hints(TimedCut)) for row in cut_rows)
    table = pruning.cuts_table(found)
    assert sum("taken" in line for line in table.rows) == sum(len(step) for step in recorded["cuts"])
    assert f"{len(cut_rows)} cuts timed for tflite int8" in table.title


def test_over_pruning_is_rejected_by_the_pipeline_itself(run: Artifact, data: Data) -> None:
    """Nine tenths of the time are to go, with a fine-tuning that mends nothing, and the budget allows 3 points."""
    found = pruned(
        run, data, run.path.parent / ".prune.over", 3.0,
        latency_ratio=0.1, steps=1, cuts_per_step=4, widths_per_group=8, channel_multiple=8, max_layer_ratio=0.9,
        learning_rate=1e-6,
    )  # fmt: skip
    choice = found.metrics["structured"]
    assert choice["kept_step"] == 0
    assert choice["reason"].startswith("rejected: no step stayed within 3 pp")
    assert not found.metrics["structured_steps"][1]["inside_budget"]
    student, kept = (open_model(each)[0].state_dict() for each in (run, found))
    assert all(kept[name].equal(value) for name, value in student.items())


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing is to be timed")


def test_a_stage_that_was_stopped_goes_on_to_the_same_result(
    run: Artifact, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tune = run.path.parent, Tuner.tune
    whole = pruned(run, data, folder / ".prune.whole", 100.0, **SHORT)
    shutil.rmtree(folder / ".training")

    def stopped(self: Tuner, module: nn.Module, name: str, *others: Any, **more: Any) -> None:
        if name == "structured-2":
            raise KeyboardInterrupt
        tune(self, module, name, *others, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Tuner, "tune", stopped)
        with pytest.raises(KeyboardInterrupt):
            pruned(run, data, folder / ".prune.stopped", 100.0, **SHORT)
    monkeypatch.setattr(latency, "time_models", refuse)
    again = pruned(run, data, folder / ".prune.stopped", 100.0, **SHORT)
    assert (again.key, again.digest) == (whole.key, whole.digest)
    assert again.metrics == whole.metrics


def test_a_recorded_choice_is_followed_without_a_clock(
    run: Artifact, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run.path.parent
    free = pruned(run, data, folder / ".prune.free", 100.0, **SHORT)
    replay.write(folder, {"prune": json.loads(free.file("decision.json").read_text())["measured"]})
    monkeypatch.setattr(latency, "time_models", refuse)
    followed = pruned(run, data, folder / ".prune.followed", 100.0, **SHORT)
    assert followed.digest == free.digest
    assert (free.metrics["replayed"], followed.metrics["replayed"]) == (False, True)
    assert pruning.cuts_table(followed).title == "No cut was timed: the cuts come from a record"


def test_the_shape_from_new_weights_stands_beside_what_was_fine_tuned(run: Artifact, data: Data) -> None:
    found = pruned(run, data, run.path.parent / ".prune.scratch", 100.0, from_scratch=True, **SHORT)
    rows, compared = found.metrics["structured_steps"], found.metrics["from_scratch"]
    scratch, tuned = rows[-1], rows[-1]["from_scratch"]
    assert compared["epochs"] == OPTIONS["epochs"] + tuned * GIVEN["epochs"]
    assert (scratch["macs"], scratch["parameters"]) == (rows[tuned]["macs"], rows[tuned]["parameters"])
    assert compared["validation_accuracy"] == scratch["validation_accuracy"]
    assert sum(row["kept"] for row in rows) == 1
    assert scratch["kept"] == compared["kept"] == (compared["below_tuned"]["bound_pp"] < 0)
    assert set(compared) == set(get_type_hints(RetrainedStep))
    assert [line[1] for line in prune_table(found).rows][len(rows) - 1] == f"{tuned}, new weights"
    assert "cuts timed" in pruning.cuts_table(found).title
    module, spec = open_model(found)
    kept = next(row for row in rows if row["kept"])
    assert evaluate(module, data.validation, spec.preprocess) == pytest.approx(kept["validation_accuracy"])
