"""A bundle's record is a config again: of every task and every source, with a student and without, no option is lost.

The artifacts are sealed by what seals a run's, from a checked config, without the work that fills them. `reproduce` is
stopped by the digest of its data, the last thing it looks at before anything runs.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.cli.init import sizes
from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import TRAINING_STAGES
from edgekit.core.errors import DataError
from edgekit.core.tasks import FILE_TASKS
from edgekit.data import load, source_names
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.stages.bundle.stage import provenance_of
from edgekit.workbook import origin
from edgekit.workbook.config_file import check_sample_counts
from edgekit.workbook.plan import Plan, load_plan
from edgekit.workbook.reproduce import UNRECORDED_PATHS, compare_inputs, is_reference_network, reproduce
from tests.conftest import TINY, FinishedRun, run_edgekit
from tests.core.tasks import task_data

OTHER = "0" * 64
STUDENT: dict[str, Any] = {"distill": {"student": {"builder": "edgekit.models.mlp:mlp"}, "epochs": 3}}
CANDIDATES: dict[str, Any] = {"distill": {"candidates": [{"builder": "edgekit.models.mlp:mlp", "kwargs": {"width": w}}
                                                         for w in (8, 16)]}}  # fmt: skip


def planned(folder: Path, config: dict[str, Any]) -> Plan:
    path = folder / "given.yaml"
    path.write_text(json.dumps({"name": "made", "model": {"builder": "edgekit.models.mlp:mlp"}, **config}))
    return load_plan(path)


def chain(plan: Plan, run: Path) -> Artifact:
    """The artifact that the bundle stage of this plan would read, and all before it, sealed in the folder of a run."""
    origin_artifact = origin.make_origin(plan, OTHER, run)
    for stage in plan.pipeline[:-1]:
        out = artifacts.begin(run / stage)
        artifacts.write_json(out / "decision.json", {})
        origin_artifact = artifacts.seal(out, stage=stage, source=origin_artifact, data_digest=OTHER, metrics={},
                               libraries=importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES,
                               config=plan.stages[stage].model_dump())  # fmt: skip
    return origin_artifact


def bundle(plan: Plan, folder: Path, **changes: Any) -> Path:
    """A bundle with the record of this plan; `changes` replace parts of it."""
    record = {**provenance_of(chain(plan, folder / "run"), plan.stages["bundle"]), **changes}
    ends = (TensorSpec("input", (1, 4), "float32", "NC"), TensorSpec("scores", (1, 2), "float32", "NC"))
    manifest = Manifest(
        name="made", version="1.0.0", target="onnx", variant="baseline-fp32-onnx",
        raw=RawSpec("vector", (4,), "float32"), inputs=ends[:1], outputs=ends[1:], preprocess=[], labels=["a", "b"],
        model_files=["model/model.onnx"], golden={"inputs": "i.npy", "outputs": "o.npy", "atol": 0.1, "top1": True},
        budget={}, verdict={}, provenance=record, requirements=[],
    )  # fmt: skip
    path = folder / "made-onnx-1.0.0.edge.zip"
    bundles.write(path, manifest, {name: b"" for name in ("model/model.onnx", "i.npy", "o.npy", "README.md")})
    return path


def settings(plan: Plan) -> list[str]:
    """What the record cannot know: where the data lies here."""
    return [f"data.path={plan.data.path}"] if hasattr(plan.data, "path") and plan.data.path else []


def read_back(plan: Plan, path: Path, folder: Path) -> Plan:
    """The plan that `reproduce` makes of the bundle's record."""
    allowed = [value for name, value in plan.data.model_dump().items() if name == "function"]
    with pytest.raises(DataError, match="the data here differs from the recorded data"):
        reproduce(path, settings(plan), folder / "out", print, allowed)
    [config] = (folder / "out").glob("*/config.yaml")
    return load_plan(config, settings(plan))


def same(plan: Plan, reread: Plan) -> None:
    assert reread.run.task == plan.run.task and reread.pipeline == plan.pipeline
    assert {stage: options.model_dump() for stage, options in reread.stages.items()} == {
        stage: options.model_dump() for stage, options in plan.stages.items()
    }
    assert origin.cache_inputs(reread, OTHER).key == origin.cache_inputs(plan, OTHER).key


@pytest.mark.parametrize("source", [name for name in source_names() if name not in FILE_TASKS])
def test_the_record_of_every_source_is_a_config_again(source: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    module = importlib.import_module(f"tests.data.sources.test_{source}")
    section = {"source": source, **module.section(tmp_path, monkeypatch)}
    plan = planned(tmp_path, {"data": section, "task": getattr(module, "TASK", "classification"), **STUDENT})
    path = bundle(plan, tmp_path)
    same(plan, read_back(plan, path, tmp_path))
    recorded = json.dumps(bundles.read(path).manifest.provenance["config"])
    assert str(tmp_path) not in recorded and UNRECORDED_PATHS[0].split(".")[1] not in json.loads(recorded)["data"]


def classes() -> task_data.Arrays:
    """Rows that all differ, of two classes."""
    return {"x_train": np.arange(1600, dtype=np.float32).reshape(400, 4), "y_train": np.arange(400) % 2}


@pytest.mark.parametrize("sections", [STUDENT, CANDIDATES, {}], ids=["student", "candidates", "no student"])
@pytest.mark.parametrize("task", ["classification", *task_data.ARRAYS_OF])
def test_the_record_of_every_task_is_a_config_again(task: str, sections: dict[str, Any], tmp_path: Path) -> None:
    arrays = {**task_data.ARRAYS_OF, "classification": classes}[task]()
    np.savez(tmp_path / "data.npz", allow_pickle=False, **arrays)
    data = {"source": "npz", "path": str(tmp_path / "data.npz"), "calibration_samples": 30}
    plan = planned(tmp_path, {"task": task, "data": data, "budget": {"latency_p50_ms": 2.0}, **sections})
    reread = read_back(plan, bundle(plan, tmp_path), tmp_path)
    same(plan, reread)
    assert (TRAINING_STAGES[0] in reread.pipeline) == bool(sections)


def test_the_record_of_few_samples_asks_for_no_more_than_there_are(tmp_path: Path) -> None:
    """A record spells every default out, and none of them becomes a demand, nor do targets that no config named."""
    x = np.arange(240, dtype=np.float32).reshape(60, 4)
    np.savez(tmp_path / "data.npz", allow_pickle=False, x_train=x, y_train=np.arange(60) % 2)
    plan = planned(tmp_path, {"data": {"source": "npz", "path": str(tmp_path / "data.npz")}, **STUDENT})
    reread = read_back(plan, bundle(plan, tmp_path), tmp_path)
    same(plan, reread)
    check_sample_counts(load(reread.data), {stage: reread.section(stage) for stage in reread.pipeline})
    assert not reread.run.targets_named
    names = planned(tmp_path, {"data": plan.values["data"], "targets": ["onnx"], **STUDENT})
    (tmp_path / "named").mkdir()
    assert read_back(names, bundle(names, tmp_path / "named"), tmp_path / "named").run.targets_named


@pytest.mark.parametrize("kind", ["image", "vector", "audio", "window", "text", "tensors"])
def test_a_network_that_init_names_is_called_without_being_allowed(kind: str) -> None:
    model, student = sizes.network_pair("classification", kind, (32, 32, 3))
    assert is_reference_network(model["builder"]) and is_reference_network(student["builder"])


@pytest.mark.long
def test_a_bundle_of_the_digits_comes_out_the_same(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """What is the same is reused as in any run; the last two stages follow the record, and the file is the same."""
    path = tiny_run.folder / "bundles" / "tiny-onnx-1.0.0.edge.zip"
    original_bundle = bundles.read(path)
    assert compare_inputs(original_bundle.manifest.provenance, load_plan(TINY)) == []
    home = tmp_path / "out" / original_bundle.sha256[:16]
    shutil.copytree(tiny_run.folder, home / "tiny")
    shutil.rmtree(home / "tiny" / "bundles")
    done = run_edgekit("reproduce", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "convert: reused" in done.stdout and "benchmark: the decisions to replay" in done.stdout
    assert "reproduced bit for bit" in done.stdout
