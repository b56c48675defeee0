"""Opening a stage: parameters are checked, order is enforced, and every road leaves the same artifact."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from edgekit.core import artifacts, lock
from edgekit.core.errors import ConfigError, DataError, ResourceError, StageError
from edgekit.core.run_folder import notebook_name
from edgekit.runner import load as load_bundle
from edgekit.workbook.config_file import own_fields, stage_config
from edgekit.workbook.plan import DEFAULT_CONFIG, load_plan
from edgekit.workbook.stage import (
    declared_parameters,
    find_config,
    open_stage,
    refuse_unknown_parameters,
    run_folder,
)
from tests.conftest import ROOT, TINY, FinishedRun, run_edgekit

DEFAULTS = load_plan(DEFAULT_CONFIG).scalars("prune")


def parameters(out: Path, **more: object) -> dict[str, object]:
    return {"config": str(TINY), "out": str(out), **more}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ration": 0.4}, 'ration: stage prune has no such parameter, did you mean "ratio"?'),
        ({"ratio": 1.5}, "prune.ratio: got 1.5"),
        ({"ratio": "0.4"}, "prune.ratio: got '0.4'"),
        ({"steps": True}, "prune.steps: got True"),
        ({"out": 3}, "out: got 3; give a string"),
        ({"settings": "prune.ration=0.4"}, 'did you mean "ratio"?'),
        ({"hub_token": "x"}, "hub_token: looks like a secret"),
    ],
)
def test_a_wrong_parameter_stops_before_anything_runs(tmp_path: Path, more: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stage("prune", {**parameters(tmp_path), **more})
    assert message in str(caught.value)


def test_names_that_are_no_parameters_are_left_alone(tiny_run: FinishedRun) -> None:
    namespace = {**parameters(tiny_run.out), "_i1": "x", "Path": Path, "numbers": [1, 2]}
    assert open_stage("prune", namespace).name == "prune"


def test_a_changed_parameter_wins_over_the_config_and_says_so(
    tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = open_stage("prune", parameters(tiny_run.out, ratio=0.4))
    assert stage.config.ratio == 0.4  # type: ignore[attr-defined]
    assert "prune.ratio is 0.4 in this cell and 0.3 in tiny.yaml: the cell wins" in capsys.readouterr().out


def test_a_parameter_left_as_it_came_follows_the_config(
    tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = declared_parameters(ROOT / "notebooks" / notebook_name("prune"))
    untouched = {name: value for name, value in DEFAULTS.items() if name in declared}
    stage = open_stage("prune", {**parameters(tiny_run.out), **untouched})
    assert stage.config == load_plan(TINY).stages["prune"]
    assert "prune.ratio is 0.5 in this cell and 0.3 in tiny.yaml: the config wins" in capsys.readouterr().out


def test_an_option_that_the_parameters_cell_does_not_have_wins_even_at_its_default(
    tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the user can have written it, so it is not taken for a value that was left alone."""
    steps = DEFAULTS["sparsity_steps"]
    assert load_plan(TINY).scalars("prune")["sparsity_steps"] != steps
    stage = open_stage("prune", parameters(tiny_run.out, sparsity_steps=steps))
    assert stage.config.sparsity_steps == steps  # type: ignore[attr-defined]
    assert "the cell wins" in capsys.readouterr().out


def test_every_option_of_the_stage_is_in_the_folded_table_with_its_value(tiny_run: FinishedRun) -> None:
    stage = open_stage("prune", parameters(tiny_run.out, ratio=0.4, settings="prune.importance=lamp"))
    config = stage_config("prune")
    rows = {name: (value, default, meaning) for name, value, default, meaning in stage.options()}
    assert list(rows) == own_fields(config)
    assert rows["ratio"][:2] == ("0.4", "0.5") and rows["importance"][:2] == ('"lamp"', '"l2"')
    assert rows["sparsity"][2] == config.model_fields["sparsity"].description
    page = stage._repr_html_()
    assert page.count("<details>") == 1 and page.index("<summary>All options of prune") < page.index("<table>")
    assert all(f"><code>{name}</code></td>" in page for name in rows)
    assert "<code>0.4</code> (default <code>0.5</code>)" in page
    assert "<" not in stage._repr_markdown_() and "| `ratio` | `0.4` |" in stage._repr_markdown_()


def test_values_of_a_config_are_no_html_in_that_table(tiny_run: FinishedRun) -> None:
    stage = open_stage("convert", parameters(tiny_run.out))
    config = stage.config.model_copy(update={"reference_preprocess": "<script>x</script>"})
    assert "<script>" not in replace(stage, config=config)._repr_html_()


def test_a_notebook_without_a_stage_refuses_a_parameter_that_it_does_not_have() -> None:
    cells = ["study: str = ''", "# Parameters\nstuddy = 'x'\ntake = 3\n"]
    with pytest.raises(ConfigError, match='studdy: this notebook has no such parameter, did you mean "study"?'):
        refuse_unknown_parameters({"study": "", "studdy": "x", "In": cells}, ["study", "take"])
    refuse_unknown_parameters({"study": "", "other": "a name of the notebook's own", "In": cells[:1]}, ["study"])


def test_a_parameter_given_to_papermill_wins_even_at_its_default(
    tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    ratio = DEFAULTS["ratio"]
    cells = ["config: str = '…'\nratio: float = 0.5", f"# Parameters\nratio = {ratio}\n"]
    stage = open_stage("prune", {**parameters(tiny_run.out, ratio=ratio), "In": cells})
    assert stage.config.ratio == ratio  # type: ignore[attr-defined]
    assert "the cell wins" in capsys.readouterr().out


def test_a_notebook_may_be_run_again_but_a_misspelt_parameter_is_still_found(tiny_run: FinishedRun) -> None:
    cells = [
        "config = '…'\nratio = 0.3",
        "stage = open_stage('prune', globals())",
        "%time\n",
        "share = 0.5\nscratch = 1",
    ]
    again = {**parameters(tiny_run.out, ratio=0.3), "share": 0.5, "scratch": 1}
    assert open_stage("prune", {**again, "In": cells}).name == "prune"
    with pytest.raises(ConfigError, match="ration: stage prune has no such parameter"):
        open_stage("prune", {**again, "ration": 0.4, "In": [*cells, "config = '…'\nration = 0.4"]})
    with pytest.raises(ConfigError, match="ration: stage prune has no such parameter"):
        open_stage("prune", {**again, "ration": 0.4, "In": ["ration = 0.4", *cells]})


@pytest.mark.parametrize(
    ("cell", "value", "message"),
    [
        ("steps = [3]", {"steps": [3]}, "prune.steps: got [3]"),
        ("ratio = None", {"ratio": None}, "prune.ratio: got None"),
        ("ration = [0.4]", {"ration": [0.4]}, 'ration: stage prune has no such parameter, did you mean "ratio"?'),
        ("apiKey = 'x'", {"apiKey": "x"}, "apiKey: looks like a secret"),
    ],
)
def test_what_papermill_injects_is_checked_whatever_its_type(
    tmp_path: Path, cell: str, value: dict[str, object], message: str
) -> None:
    history = ["", "config: str = '…'", f"# Parameters\n{cell}", "stage = open_stage('prune', globals())"]
    with pytest.raises(ConfigError) as caught:
        open_stage("prune", {**parameters(tmp_path), **value, "In": history})
    assert message in str(caught.value)


def test_two_notebooks_do_not_write_to_one_run(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    stage = open_stage("distill", parameters(tmp_path))
    with lock.hold(tmp_path / "tiny/.lock", "somebody"), pytest.raises(ResourceError, match="in use by `somebody`"):
        stage.run()


def test_a_damaged_artifact_is_made_again(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    before = artifacts.load(tmp_path / "tiny/distill").digest
    (tmp_path / "tiny/distill/model/weights.safetensors").unlink()
    assert open_stage("distill", parameters(tmp_path)).run().digest == before


NETWORK = """
from torch import nn

def mlp(num_classes, hidden=16):
    return nn.Sequential(nn.Linear(6, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
"""


def test_an_edited_network_of_the_users_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vector_project(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    values = {"config": str(tmp_path / "vectors.yaml"), "out": str(tmp_path / "runs")}
    first = open_stage("profile", values).run()
    assert open_stage("profile", values).run() == first
    (tmp_path / "vector_nets.py").write_text(NETWORK.replace("ReLU", "Tanh"))
    monkeypatch.delitem(sys.modules, "vector_nets")
    importlib.invalidate_caches()
    assert open_stage("profile", values).run().key != first.key


def test_a_network_edited_under_a_kernel_that_holds_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vector_project(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "vector_nets", raising=False)
    values = {"config": str(tmp_path / "vectors.yaml"), "out": str(tmp_path / "runs")}
    importlib.invalidate_caches()
    open_stage("profile", values).run()
    open_stage("distill", values).run()
    (tmp_path / "vector_nets.py").write_text(NETWORK.replace("ReLU", "Tanh"))
    with pytest.raises(StageError, match="restart the kernel"):
        open_stage("distill", values).run()


@pytest.mark.long
def test_vectors_and_a_network_beside_the_config_run_to_bundles(tmp_path: Path) -> None:
    write_vector_project(tmp_path)
    done = run_edgekit("run", str(tmp_path / "vectors.yaml"), "--out", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "runs/vectors/result.json").read_text())
    assert set(result["bundles"]) == {"tflite", "openvino", "onnx"}
    model = load_bundle(tmp_path / "runs/vectors/bundles" / result["bundles"]["openvino"]["file"])
    assert model.predict(np.ones(6, dtype=np.float32)).label in ("left", "right")


def write_vector_project(folder: Path) -> None:
    """Two Gaussian clouds in six dimensions, a small network in a module of the user's own, a quick config."""
    random = np.random.default_rng(0)
    labels = np.arange(600) % 2
    x = (random.normal(size=(600, 6)) + 2 * labels[:, None] - 1).astype(np.float32)
    np.savez(folder / "clouds.npz", x_train=x, y_train=labels, classes=np.array(["left", "right"]))
    (folder / "vector_nets.py").write_text(NETWORK)
    network = {"builder": "vector_nets:mlp"}
    values = {
        "name": "vectors",
        "threads": 1,
        "data": {"source": "npz", "path": "clouds.npz", "calibration_samples": 60},
        "model": {**network, "kwargs": {"hidden": 32}},
        "budget": {"accuracy_drop_pp": 20.0},
        "profile": {"epochs": 3, "compiling": False, "runtimes": False},
        "distill": {"student": network, "epochs": 3},
        "prune": {"epochs": 1, "steps": 1, "sparsity_steps": 1},
        "quantize": {"epochs": 1, "calibration_samples": 60},
        "convert": {"calibration_samples": 60, "models": ["baseline", "pruned"]},
        "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 10, "load_s": 0},
    }
    (folder / "vectors.yaml").write_text(yaml.safe_dump(values))


def test_settings_reach_the_run_wide_options(tiny_run: FinishedRun) -> None:
    stage = open_stage("prune", parameters(tiny_run.out, settings="budget.accuracy_drop_pp=2.5 prune.ratio=0.25"))
    assert stage.config.budget.accuracy_drop_pp == 2.5  # type: ignore[attr-defined]
    assert stage.config.ratio == 0.25  # type: ignore[attr-defined]


def test_a_stage_out_of_order_names_the_notebook_to_run(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"no finished stage 'distill' here; run 02_distill.ipynb first"):
        open_stage("prune", parameters(tmp_path))


def test_other_data_than_the_run_was_made_from_is_refused(tiny_run: FinishedRun) -> None:
    with pytest.raises(StageError, match="made from other data"):
        open_stage("prune", parameters(tiny_run.out, settings="data.split_seed=1"))


def test_only_benchmark_sees_the_test_split(tiny_run: FinishedRun) -> None:
    with pytest.raises(DataError, match="withheld"):
        _ = open_stage("prune", parameters(tiny_run.out)).data.test
    assert len(open_stage("benchmark", parameters(tiny_run.out)).data.test) > 0


def test_an_unchanged_stage_is_reused(tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    before = artifacts.load(tiny_run.folder / "distill")
    assert open_stage("distill", parameters(tiny_run.out)).run() == before
    assert "reused, its key" in capsys.readouterr().out


def test_a_failing_stage_leaves_the_earlier_artifact(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    before = artifacts.load(tmp_path / "tiny/distill")
    stage = open_stage("distill", parameters(tmp_path, learning_rate=10.0, epochs=1, settings="device=cpu"))
    shutil.rmtree(tmp_path / "tiny/profile/model")
    with pytest.raises(Exception, match="profile"):
        stage.run()
    assert artifacts.load(tmp_path / "tiny/distill") == before
    assert not list((tmp_path / "tiny").glob(".distill*"))


def test_configs_are_found_from_the_notebooks_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    assert find_config("configs/digits.yaml").resolve() == ROOT / "configs/digits.yaml"


def test_runs_lie_in_the_project_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = ROOT / "configs/digits.yaml"
    monkeypatch.delenv("EDGEKIT_ARTIFACTS", raising=False)
    assert run_folder(load_plan(config), Path("artifacts"), config) == ROOT / "artifacts/digits"
    assert run_folder(load_plan(config), tmp_path, config) == tmp_path / "digits"
    monkeypatch.setenv("EDGEKIT_ARTIFACTS", str(tmp_path))
    assert run_folder(load_plan(config), Path("artifacts"), config) == tmp_path / "digits"
