"""What a run can make of a file is known before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import ConfigError
from edgekit.workbook.plan import load_plan
from tests.models.files import files, trained

ALONE: dict[str, Any] = dict.fromkeys(("distill", "prune", "quantize"))


@pytest.mark.parametrize(
    ("kind", "targets"), [("openvino", ["tflite", "onnx"]), ("openvino", ["onnx"]), ("tflite", ["onnx"])]
)
def test_a_file_that_no_target_takes_is_refused(kind: str, targets: list[str], tmp_path: Path) -> None:
    path = files.make(kind, tmp_path)
    message = "model.source and targets disagree: an? .* model cannot be converted to any of"
    with pytest.raises(ConfigError, match=message) as refused:
        load_plan(trained.config(path, tmp_path, **ALONE, targets=targets))
    assert "name other targets, or give distill a student" in str(refused.value)


def test_one_target_that_takes_it_is_enough_where_none_is_named(tmp_path: Path) -> None:
    path = files.make("openvino", tmp_path)
    assert load_plan(trained.config(path, tmp_path, **ALONE, targets=None)).source == path
    with pytest.raises(ConfigError, match=r"an OpenVINO model cannot be converted to any of \['onnx'\]"):
        load_plan(trained.config(path, tmp_path, **ALONE, targets=["onnx", "openvino"]))


@pytest.mark.parametrize("changes", [{}, {"convert": {"models": ["student"]}}])
def test_where_the_student_is_converted_the_file_need_not_be(changes: dict[str, Any], tmp_path: Path) -> None:
    path = files.make("openvino", tmp_path)
    assert load_plan(trained.config(path, tmp_path, **changes, targets=["onnx"])).source == path


def test_a_student_that_is_not_converted_makes_up_for_nothing(tmp_path: Path) -> None:
    path = files.make("openvino", tmp_path)
    with pytest.raises(ConfigError, match="model.source and targets disagree"):
        load_plan(trained.config(path, tmp_path, targets=["onnx"], convert={"models": ["baseline"]}))


def test_without_a_student_the_baseline_must_be_converted(tmp_path: Path) -> None:
    path = files.make("openvino", tmp_path)
    with pytest.raises(ConfigError, match=r"convert.models and distill disagree: got \['pruned'\], but a run without"):
        load_plan(trained.config(path, tmp_path, **ALONE, convert={"models": ["pruned"]}))
