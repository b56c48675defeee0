"""A detector whose outputs can be read in several ways is read as its labels say, or as the config says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.cli.init.config_check import read_data
from edgekit.core.errors import ModelError
from edgekit.models.files import published_detector
from edgekit.models.files.detector_readings import OutputReader
from edgekit.models.files.task_outputs import for_task
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.cli import painted
from tests.models.files import detection_postprocess, detector_heads
from tests.models.files.test_published_detector import run_tflite

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


def test_the_answers_of_a_tflite_file_are_those_of_its_head(tmp_path: Path) -> None:
    """(n, points, 4 + classes), as all detectors are scored, and not the file's own outputs."""
    path, images = tmp_path / "net.tflite", detector_heads.images(3).transpose(0, 2, 3, 1)
    path.write_bytes(detection_postprocess.tflite())
    needed = for_task("detection", detector_heads.CLASSES, images.shape[1:])
    read = published_detector.read(path, "tflite", needed, images)
    assert read is not None
    [answers] = OutputReader(path, "tflite", [replace(needed, head=read.head)]).answers(images, lambda x: x)
    best = (1 / (1 + np.exp(-answers[..., 4:]))).max(axis=(1, 2))
    scores = [run_tflite(path.read_bytes(), image)["score"].max() for image in images]
    np.testing.assert_allclose(best, scores, atol=1e-5)


def test_labels_that_do_not_decide_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"do not decide how these are read.* 'picodet' .* 'yolov8' .*model\.head"):
        facts(tmp_path, (5, 5, 50, 50), (10, 10, 60, 60))
