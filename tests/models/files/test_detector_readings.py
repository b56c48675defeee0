"""A detector whose outputs can be read in several ways is read as its labels say, or as the config says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.cli.init.config_check import read_data
from edgekit.core.errors import ModelError
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.cli import painted

PLACE = (0, 0, 48, 48)


def facts(home: Path, place: tuple[int, int, int, int], numbers: tuple[int, ...], **options: Any) -> dict[str, Any]:
    """What the profile stage learns about a detector that gives these four numbers for an object at a place."""
    painted.one_object_folder(home / "data", place)
    painted.one_object_detector(home / "net.onnx", place, numbers)
    section = {"source": "boxes", "path": str(home / "data"), "annotations": "yolo", "height": 64, "width": 64}
    section |= {"validation_fraction": 0.3, "test_fraction": 0.3, "calibration_samples": 4}
    data = read_data("mine", "detection", section)
    options.setdefault("labelled", (data.train.x, data.train.y))
    model = open_file(home / "net.onnx", painted.ZERO_TO_ONE)
    common: dict[str, Any] = {"classes": len(painted.COLOURS), "timeout_s": 300, "threads": 1, "task": "detection"}
    return logits_and_facts(model, data.validation.x, **common, **options)[1]


@pytest.mark.parametrize(("numbers", "code"), [((24, 24, 48, 48), "centre"), ((0, 0, 48, 48), "corners")])
def test_the_way_that_fits_the_labels_is_taken(numbers: tuple[int, ...], code: str, tmp_path: Path) -> None:
    assert facts(tmp_path, PLACE, numbers)["head"]["boxes"] == code


def test_the_head_of_the_config_is_taken_instead(tmp_path: Path) -> None:
    assert facts(tmp_path, PLACE, (24, 24, 48, 48), head="picodet")["head"]["boxes"] == "corners"


def test_labels_that_do_not_decide_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"do not decide how these are read.* 'picodet' .* 'yolov8' .*model\.head"):
        facts(tmp_path, (5, 5, 50, 50), (10, 10, 60, 60))
