"""Opening a stage: parameters are checked, order is enforced, and every road leaves the same artifact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit import artifact as artifacts
from edgekit.errors import ConfigError, DataError, StageError
from edgekit.workbook import find_config, open_stage, run_folder
from tests.conftest import ROOT, TINY, FinishedRun


def parameters(out: Path, **more: object) -> dict[str, object]:
    return {"config": str(TINY), "out": str(out), **more}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ration": 0.4}, 'ration: stage prune has no such parameter, did you mean "ratio"?'),
        ({"ratio": 1.5}, "prune.ratio: got 1.5"),
        ({"ratio": "0.4"}, "prune.ratio: got '0.4'"),
        ({"steps": True}, "prune.steps: got True"),
        ({"out": 3}, "out: got 3; a text is wanted"),
        ({"settings": "prune.ration=0.4"}, 'did you mean "ratio"?'),
    ],
)
def test_a_wrong_parameter_stops_before_anything_runs(tmp_path: Path, more: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stage("prune", {**parameters(tmp_path), **more})
    assert said in str(caught.value)


def test_names_that_are_no_parameters_are_left_alone(tiny_run: FinishedRun) -> None:
    namespace = {**parameters(tiny_run.out), "_i1": "x", "Path": Path, "numbers": [1, 2]}
    assert open_stage("prune", namespace).name == "prune"


def test_the_parameters_cell_wins_and_says_so(tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    stage = open_stage("prune", parameters(tiny_run.out, ratio=0.4))
    assert stage.config.ratio == 0.4  # type: ignore[attr-defined]
    assert "prune.ratio is 0.4 here and 0.3 in tiny.yaml: this cell wins" in capsys.readouterr().out


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


def test_runs_lie_in_the_project_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from edgekit.plan import load_plan

    config = ROOT / "configs/digits.yaml"
    monkeypatch.delenv("EDGEKIT_ARTIFACTS", raising=False)
    assert run_folder(load_plan(config), Path("artifacts"), config) == ROOT / "artifacts/digits"
    assert run_folder(load_plan(config), tmp_path, config) == tmp_path / "digits"
    monkeypatch.setenv("EDGEKIT_ARTIFACTS", str(tmp_path))
    assert run_folder(load_plan(config), Path("artifacts"), config) == tmp_path / "digits"
