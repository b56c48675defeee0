"""`--take` writes a config that loads, says where it comes from, and never overwrites a file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.core import yaml_file
from edgekit.core.errors import ConfigError, DataError, EdgekitError, ResourceError
from edgekit.report.search import studies
from edgekit.report.search.studies import Study
from edgekit.search import trial_config
from edgekit.workbook import config_file
from edgekit.workbook.plan import load_plan
from tests.report.search import example


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return example.study()


def searched(folder: Path, content: dict[str, Any], config: dict[str, Any] | None = None) -> Study:
    """A study in `out/made-up-search` of a config that lies in `configs`."""
    result = copy.deepcopy(content)
    path = folder / "configs" / "digits.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    result["config"] = config or result["config"]
    path.write_text(yaml.safe_dump(result["config"]))
    result["config_path"] = str(path)
    return studies.read(example.write(result, folder / "out" / "made-up-search" / "study.json"))


def test_a_taken_config_is_the_searched_one_with_the_trials_settings(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    for trial in study.front:
        out = trial_config.write_trial_config(study, trial["number"])
        assert out == tmp_path / "configs" / f"digits-trial-{trial['number']}.yaml"
        written, expected = load_plan(out), load_plan(tmp_path / "configs" / "digits.yaml", trial["settings"])
        assert (written.values, written.stages, written.run, written.data) == (
            expected.values,
            expected.stages,
            expected.run,
            expected.data,
        )
        assert written.values["distill"]["learning_rate"] == trial["parameters"][example.RATE]
        assert [path.name for path in out.parent.glob(".*")] == []


def test_its_comments_say_where_it_comes_from(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    number = study.front[0]["number"]
    comments = [
        line for line in trial_config.write_trial_config(study, number).read_text().splitlines() if line.startswith("#")
    ]
    text = "\n".join(comments)
    for words in (f"Trial {number} of study made-up", "98.33 % (97.13–99.05)", *study.front[0]["settings"], "made up",
                  study.row["batches"][study.front[0]["batch"]]["digest"], "edgekit run "):  # fmt: skip
        assert words in text, words
    assert "--cache" not in text
    (study.path.parent / trial_config.CACHE_FOLDER).mkdir()
    again = trial_config.write_trial_config(study, number, tmp_path / "configs" / "again.yaml").read_text()
    assert f"--cache {study.path.parent / trial_config.CACHE_FOLDER}" in again


@pytest.mark.parametrize("state", ["infeasible", "stopped", "failed", "complete"])
def test_what_is_not_inside_the_budget_is_refused_in_one_line(
    state: str, content: dict[str, Any], tmp_path: Path
) -> None:
    study = searched(tmp_path, content)
    trial = next(each for each in study.trials if each["state"] == state and not each["feasible"])
    with pytest.raises(ConfigError) as refused:
        trial_config.write_trial_config(study, trial["number"])
    text = str(refused.value)
    assert "\n" not in text and text.startswith(f"--take {trial['number']}: ") and "take one of the front: 15, " in text
    assert (trial["reason"] or "drop of accuracy by") in text
    assert [path.name for path in (tmp_path / "configs").iterdir()] == ["digits.yaml"]


@pytest.mark.parametrize("number", [-1, 40, 10**30])
def test_the_error_for_an_unknown_number_lists_the_trials(number: int, content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such trial, only 0 to 39; on the front: 15, 31, 28, 29, 6$"):
        trial_config.write_trial_config(searched(tmp_path, content), number)


def test_a_study_without_a_trial_inside_the_budget_says_so(tmp_path: Path) -> None:
    study = searched(tmp_path, example.study(trials=4, budget={"latency_p50_ms": 0.001}))
    with pytest.raises(ConfigError, match="no trial meets the budget"):
        trial_config.write_trial_config(study, 0)


def test_nothing_is_overwritten_not_even_a_broken_link(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    mine, link = tmp_path / "mine.yaml", tmp_path / "link.yaml"
    mine.write_text("mine\n")
    link.symlink_to(tmp_path / "nowhere")
    for out in (mine, link):
        with pytest.raises(ConfigError, match="exists already and is not overwritten"):
            trial_config.write_trial_config(study, study.front[0]["number"], out)
    assert mine.read_text() == "mine\n" and not link.exists()


@pytest.mark.parametrize("name", ["trial.json", "trial"])
def test_a_config_ends_in_yaml(name: str, content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    with pytest.raises(ConfigError, match="ends in .yaml"):
        trial_config.write_trial_config(study, study.front[0]["number"], tmp_path / name)


def test_a_file_in_the_way_of_the_folder_is_one_line(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"):
        trial_config.write_trial_config(study, study.front[0]["number"], tmp_path / "file" / "a.yaml")


def test_in_another_folder_relative_paths_become_absolute(content: dict[str, Any], tmp_path: Path) -> None:
    config = copy.deepcopy(content["config"])
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "weights.safetensors").write_bytes(b"")
    config["data"] = {"source": "npz", "path": "data/mine.npz"}
    config["preprocess"] = []
    study = searched(tmp_path, content, config)
    number = study.front[0]["number"]
    beside = yaml.safe_load(trial_config.write_trial_config(study, number).read_text())
    elsewhere = yaml.safe_load(
        trial_config.write_trial_config(study, number, tmp_path / "new" / "folder" / "a.yaml").read_text()
    )
    assert beside["data"]["path"] == "data/mine.npz"
    assert elsewhere["data"]["path"] == str(tmp_path / "configs" / "data" / "mine.npz")


def test_a_config_that_this_edgekit_does_not_load_leaves_no_file(content: dict[str, Any], tmp_path: Path) -> None:
    config = {**copy.deepcopy(content["config"]), "beauty": 1}
    study = searched(tmp_path, content, config)
    with pytest.raises(ConfigError, match="its config does not load: beauty: unknown key") as refused:
        trial_config.write_trial_config(study, study.front[0]["number"])
    assert "\n" not in str(refused.value)
    assert [path.name for path in (tmp_path / "configs").iterdir()] == ["digits.yaml"]


@pytest.mark.parametrize("text", ["1e-3", "yes", "null", "2024-01-01", "a: b", "# no", "é\u2028", " x ", "12:30:45"])
def test_any_text_in_a_config_is_written_as_it_is_read(text: str) -> None:
    values = {"name": text, "deep": [{"a": text, "b": 1e-05, "c": None, "d": True}]}
    assert yaml_file.parse(trial_config._dump_yaml(values)) == values


def test_a_reason_with_a_line_of_its_own_stays_a_comment(content: dict[str, Any], tmp_path: Path) -> None:
    result = copy.deepcopy(content)
    result["ended"] = "minutes\nname: stolen\u2028version: 9\x85x: 1"
    study = searched(tmp_path, result)
    out = trial_config.write_trial_config(study, study.front[0]["number"])
    assert load_plan(out).values["name"] == result["config"]["name"]


def test_the_command_says_what_it_wrote_and_what_to_do_next(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    text: list[str] = []
    out = tmp_path / "taken.yaml"
    trial_config.run_take(study.path.parent, study.front[0]["number"], out, lambda line: text.append(str(line)))
    assert text[0].startswith("trial       15: accuracy 98.33") and text[-1] == f"next        edgekit run {out}"
    with pytest.raises(DataError, match="no such study"):
        trial_config.run_take(tmp_path / "none", 0, out, print)


def test_a_setting_that_fits_no_section_is_one_line(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    trial = copy.deepcopy(study.front[0])
    trial["settings"] = ["seed.deep=1"]
    study.row["trials"][trial["number"]] = trial
    with pytest.raises(EdgekitError, match="seed holds 0, not a section"):
        trial_config.write_trial_config(study, trial["number"])
    assert config_file.join_settings(["a=1"]) == "a=1"


def test_a_study_of_another_config_with_the_same_name_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    study = searched(tmp_path, content)
    other = tmp_path / "configs" / "other.yaml"
    other.write_text(yaml.safe_dump({**content["config"], "seed": 77}))
    with pytest.raises(ConfigError, match=r"a study of .*digits\.yaml, not of other\.yaml"):
        trial_config.run_take(study.path, study.front[0]["number"], None, print, load_plan(other))
    assert sorted(path.name for path in other.parent.iterdir()) == ["digits.yaml", "other.yaml"]
    other.write_text(yaml.safe_dump(content["config"]))  # a copy of what was searched
    trial_config.run_take(study.path, study.front[0]["number"], None, print, load_plan(other))


def test_a_config_that_was_edited_since_its_search_is_reported_in_one_line(
    content: dict[str, Any], tmp_path: Path
) -> None:
    study, text = searched(tmp_path, content), list[str]()
    config = tmp_path / "configs" / "digits.yaml"
    trial_config.run_take(study.path, study.front[0]["number"], tmp_path / "a.yaml", text.append, load_plan(config))
    assert not any("changed since" in line for line in text)
    edited = load_plan(config, ["seed=77"])
    trial_config.run_take(study.path, study.front[0]["number"], tmp_path / "b.yaml", text.append, edited)
    assert any("changed since (seed)" in line for line in text)
    assert load_plan(tmp_path / "b.yaml").run.seed != 77
