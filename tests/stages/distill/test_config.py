"""What the distill section of a config may say, and what is answered where it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgekit.errors import ConfigError
from edgekit.plan import load_plan
from edgekit.stages.distill import Config
from tests.conftest import TINY

FILE = {"path": "teacher.tflite"}


def plan_with(tmp_path: Path, **distill: object):
    given = yaml.safe_load(TINY.read_text())
    given["distill"] |= distill
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    return load_plan(tmp_path / "run.yaml")


def config_with(tmp_path: Path, **distill: object) -> Config:
    config = plan_with(tmp_path, **distill).stages["distill"]
    assert isinstance(config, Config)
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
        ({"teachers": [{}]}, ["distill.teachers", "nobody", "baseline: true, builder, path"]),
        ({"teachers": [{"baseline": True, **FILE}]}, ["baseline and path"]),
        ({"teachers": [{"baseline": True, "preprocess": [{"step": "scale"}]}]}, ["preprocess belongs to a file"]),
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
    [alone] = config_with(tmp_path, temperature=2.0, alpha=0.3).lessons()
    assert alone.model_dump() == {"loss": "soft_targets", "temperature": 2.0, "alpha": 0.3}
    named = config_with(tmp_path, temperature=2.0, losses=[{"loss": "soft_targets", "alpha": 0.5}, {"loss": "dkd"}])
    soft, decoupled = (each.model_dump() for each in named.lessons())
    assert (soft["temperature"], soft["alpha"]) == (2.0, 0.5)
    assert decoupled["temperature"] == 4.0


def test_a_teachers_path_starts_at_the_configs_folder(tmp_path: Path) -> None:
    [teacher] = config_with(tmp_path, teachers=[{"path": "below/teacher.tflite"}]).teachers
    assert teacher.path == str(tmp_path.resolve() / "below/teacher.tflite")
    assert teacher.name == "teacher.tflite"


def test_a_teachers_file_is_part_of_the_key(tmp_path: Path) -> None:
    from edgekit.keys import gather

    config = config_with(tmp_path, teachers=[FILE]).model_dump()

    def key() -> str:
        return gather("distill", config, None, "0" * 64, ()).key

    absent = key()
    (tmp_path / "teacher.tflite").write_bytes(b"one")
    first = key()
    (tmp_path / "teacher.tflite").write_bytes(b"two")
    assert len({absent, first, key()}) == 3
