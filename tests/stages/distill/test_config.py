"""What the distill section of a config may say, and what is answered where it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgekit.core.cache_key import collect_inputs
from edgekit.core.config import NetworkConfig
from edgekit.core.errors import ConfigError
from edgekit.stages.distill import DistillConfig
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY

FILE = {"path": "teacher.tflite"}
RESNET = {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": 4}}
MODEL = b"\x1c\0\0\0TFL3" + bytes(64)


def plan_with(tmp_path: Path, **distill: object):
    (tmp_path / "teacher.tflite").write_bytes(MODEL)
    given = yaml.safe_load(TINY.read_text())
    given["distill"] |= distill
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    return load_plan(tmp_path / "run.yaml")


def config_with(tmp_path: Path, **distill: object) -> DistillConfig:
    config = plan_with(tmp_path, **distill).stages["distill"]
    assert isinstance(config, DistillConfig)
    return config


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"losses": [{"loss": "dkdd"}]}, ["distill.losses.loss", "'dkdd'", 'did you mean "dkd"?']),
        ({"losses": [{"temperature": 2.0}]}, ["distill.losses", "needs `loss:`"]),
        ({"losses": [{"loss": "dkd", "gamma": 1.0}]}, ["distill.losses.gamma", "unknown key"]),
        ({"losses": [{"loss": "dist", "beta": -1.0}]}, ["distill.losses.beta", "-1.0"]),
        ({"losses": [{"loss": "dkd"}, {"loss": "dkd", "beta": 2.0}]}, ["distill.losses", "dkd twice"]),
        ({"teachers": []}, ["distill.teachers"]),
        ({"student": None}, ["distill: names neither student nor candidates"]),
        ({"candidates": [RESNET]}, ["distill: names both student and candidates"]),
        ({"student": None, "candidates": [RESNET, dict(RESNET)]}, ["distill.candidates", "resnet8(width=4) twice"]),
        ({"student": None, "candidates": [{"builder": "resnet8"}]}, ["distill.candidates.0.builder", "resnet8"]),
        ({"candidate_epochs": -1}, ["distill.candidate_epochs", "-1"]),
        ({"most_trained": -1}, ["distill.most_trained", "-1"]),
        ({"rounds": 3}, ["distill.rounds", "3"]),
        ({"teachers": [{}]}, ["distill.teachers", "no teacher", "baseline: true, builder, path"]),
        ({"teachers": [{"baseline": True, **FILE}]}, ["baseline and path"]),
        ({"teachers": [{"baseline": True, "preprocess": [{"step": "scale"}]}]}, ["preprocess", "teacher with path"]),
        ({"teachers": [{**FILE, "kwargs": {"depth": 8}}]}, ["kwargs", "teacher with builder"]),
        ({"teachers": [{"baseline": True, "training": {"epochs": 3}}]}, ["training", "teacher with builder"]),
        ({"teachers": [{"path": "absent.onnx"}]}, ["distill.teachers", "absent.onnx", "no such file"]),
        ({"teachers": [{"path": "run.yaml"}]}, ["distill.teachers", "run.yaml", "looks like"]),
        ({"teachers": [{**FILE, "preprocess": [{"stp": "scale"}]}]}, ["distill.teachers", "teacher.tflite", "stp"]),
        ({"teachers": [{**FILE, "sha256": "0" * 64}]}, ["distill.teachers", "0" * 64, "expected"]),
        ({"teachers": [{"path": "${NOBODY_SET_THIS}/a.onnx"}]}, ["NOBODY_SET_THIS", "not set"]),
        ({"teachers": [FILE], "losses": [{"loss": "hints"}]}, ["losses", "teachers", "hints", "feature maps"]),
        ({"teachers": [{"builder": "a.b:c", "training": {"epoch": 3}}]}, ["training.epoch", "epochs"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, section: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_with(tmp_path, **section)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_soft_targets_are_the_stages_own_unless_they_say_otherwise(tmp_path: Path) -> None:
    [alone] = config_with(tmp_path, temperature=2.0, alpha=0.3).loss_options()
    assert alone.model_dump() == {"loss": "soft_targets", "temperature": 2.0, "alpha": 0.3}
    named = config_with(tmp_path, temperature=2.0, losses=[{"loss": "soft_targets", "alpha": 0.5}, {"loss": "dkd"}])
    soft, decoupled = (each.model_dump() for each in named.loss_options())
    assert (soft["temperature"], soft["alpha"]) == (2.0, 0.5)
    assert decoupled["temperature"] == 4.0


def test_a_teachers_path_starts_at_the_configs_folder_and_only_its_name_is_recorded(tmp_path: Path) -> None:
    config = config_with(tmp_path, teachers=[FILE])
    [teacher] = config.teachers
    assert teacher.path == str(tmp_path.resolve() / "teacher.tflite")
    assert teacher.name == "teacher.tflite"
    [recorded] = config.model_dump()["teachers"]
    assert recorded["path"] == "teacher.tflite" and len(recorded["sha256"]) == 64
    assert str(tmp_path) not in str(config.model_dump())


def test_a_teachers_content_is_part_of_the_key_and_its_place_is_not(tmp_path: Path) -> None:
    def key(folder: Path) -> str:
        section = [{"path": str(folder / "teacher.tflite")}]
        return collect_inputs("distill", config_with(tmp_path, teachers=section).model_dump(), None, "0" * 64, ()).key

    for name, content in (("one", MODEL), ("same", MODEL), ("other", MODEL + b"\0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "teacher.tflite").write_bytes(content)
    assert key(tmp_path / "one") == key(tmp_path / "same") != key(tmp_path / "other")


SLOWER: dict[str, object] = {
    "budget": {"latency_p50_ms": 1.0},
    "targets": ["onnx"],
}


def key_of(tmp_path: Path, shared: dict[str, object], **section: object) -> str:
    given = yaml.safe_load(TINY.read_text()) | shared
    given["distill"] |= section
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    return collect_inputs(
        "distill", load_plan(tmp_path / "run.yaml").stages["distill"].model_dump(), None, "0" * 64, ()
    ).key


def test_what_times_candidates_is_part_of_the_key_only_where_there_are_some(tmp_path: Path) -> None:
    assert key_of(tmp_path, {}) == key_of(tmp_path, SLOWER, rounds=50, most_trained=1, candidate_epochs=2)
    some: dict[str, object] = {"student": None, "candidates": [RESNET]}
    keys = [key_of(tmp_path, {}, **some), key_of(tmp_path, SLOWER, **some), key_of(tmp_path, {}, **some, rounds=50)]
    assert len(set(keys)) == 3
    looser: dict[str, object] = {"budget": {"accuracy_drop_pp": 7.0}}
    assert key_of(tmp_path, looser, **some) == keys[0], "accuracy is no reason to time anything again"


def test_a_recorded_config_is_the_same_config(tmp_path: Path) -> None:
    config = config_with(tmp_path, student=None, candidates=[RESNET])
    again = DistillConfig.model_validate(config.model_dump())
    assert again.model_dump() == config.model_dump() and again.candidates == config.candidates


def test_a_title_does_not_depend_on_the_order_of_the_arguments() -> None:
    titles = {
        NetworkConfig(builder="edgekit.models.ds_cnn:ds_cnn", kwargs=kwargs).title
        for kwargs in ({"width": 8, "block_strides": [2, 1]}, {"block_strides": [2, 1], "width": 8})
    }
    assert titles == {"ds_cnn(block_strides=[2, 1], width=8)"}
    assert NetworkConfig(builder="a.b:small").title == "small"
