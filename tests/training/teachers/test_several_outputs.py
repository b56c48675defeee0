"""The answers of files of detectors and segmenters: kinds, order of outputs, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.training.teachers.model_file import logits, logits_and_facts, open_file
from tests.cli import several_outputs as models
from tests.cli.several_outputs import GRID, POINTS, SHAPE

pytestmark = pytest.mark.zoo

SCALE = [{"step": "scale", "factor": 1 / 255}]
SWAPPED = ("scores", "boxes")


class Heads(nn.Module):
    """The two heads, as PyTorch has them."""

    def __init__(self, order: Sequence[str]) -> None:
        super().__init__()
        self.order = tuple(order)
        for name, (weights, bias) in models.heads().items():
            self.register_buffer(f"{name}_w", torch.from_numpy(weights))
            self.register_buffer(f"{name}_b", torch.from_numpy(bias))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        means = x.mean(dim=(2, 3))
        made = {
            name: (means @ getattr(self, f"{name}_w") + getattr(self, f"{name}_b")).reshape(len(x), POINTS, -1)
            for name in models.heads()
        }
        return tuple(made[name] for name in self.order)


def exported(path: Path, order: Sequence[str] = ("boxes", "scores")) -> Path:
    torch.export.save(torch.export.export(Heads(order).eval(), (torch.zeros(1, 3, *SHAPE),)), str(path))
    return path


def keras(path: Path, order: Sequence[str] = ("boxes", "scores")) -> Path:
    models.keras(order).save(path)
    return path


DETECTORS: dict[str, Callable[..., Path]] = {
    "onnx": models.onnx, "xml": models.openvino, "tflite": models.tflite, "keras": keras, "pt2": exported
}  # fmt: skip


def answers(path: Path, x: np.ndarray, task: Task = "detection", classes: int = 3) -> np.ndarray:
    return logits(open_file(path, SCALE), x, classes=classes, timeout_s=120, threads=1, task=task)


@pytest.mark.parametrize("order", [("boxes", "scores"), SWAPPED], ids=["boxes_first", "scores_first"])
@pytest.mark.parametrize("kind", DETECTORS)
def test_boxes_come_before_logits_whatever_the_file_has_first(
    kind: str, order: tuple[str, ...], tmp_path: Path
) -> None:
    """40 pictures are more than a batch."""
    path, x = DETECTORS[kind](tmp_path / f"two.{kind}", order), models.images(40)
    found, facts = logits_and_facts(open_file(path, SCALE), x, classes=3, timeout_s=120, threads=1, task="detection")
    np.testing.assert_allclose(found, models.expected_outputs(x), atol=1e-3)
    assert not (facts["probabilities"] or facts["sigmoids"] or facts["integers"])


def test_both_in_one_tensor_are_taken(tmp_path: Path) -> None:
    x = models.images()
    found = answers(models.onnx(tmp_path / "joined.onnx", ("joined",)), x)
    np.testing.assert_allclose(found, models.expected_outputs(x), atol=1e-4)


def test_a_quantized_detector_answers_in_real_numbers(tmp_path: Path) -> None:
    path, x = models.tflite(tmp_path / "small.tflite", SWAPPED, integers=True), models.images()
    found, facts = logits_and_facts(open_file(path, SCALE), x, classes=3, timeout_s=120, threads=1, task="detection")
    exact = models.expected_outputs(x)
    assert facts["integers"] and np.abs(found - exact).max() < 0.05 * np.ptp(exact)


@pytest.mark.parametrize("kind", ["onnx", "tflite", "keras"])
def test_a_grid_has_its_classes_in_front(kind: str, tmp_path: Path) -> None:
    """TFLite and Keras give them last."""
    path, x = tmp_path / f"masks.{kind}", models.images(40)
    if kind == "keras":
        models.mask_keras().save(path)
    else:
        {"onnx": models.mask_onnx, "tflite": models.mask_tflite}[kind](path)
    found = answers(path, x, "segmentation")
    assert found.shape == (40, 3, *GRID)
    cells = found.argmax(axis=1).repeat(4, 1).repeat(4, 2)
    assert np.array_equal(cells, np.stack([models.mask(image) for image in x]))


@pytest.mark.parametrize(
    ("options", "task", "classes", "message"),
    [
        (
            {"end": "Sigmoid"},
            "detection",
            3,
            "gives for an image of 48×32 pixels [1, 126, 4] from",
        ),
        ({}, "detection", 2, "The data have 2 classes, for which a known head gives boxes and scores"),
        (
            {"order": ("boxes", "scores", "joined")},
            "detection",
            3,
            "[1, 126, 7] from",
        ),
        ({}, "classification", 3, "has 2 outputs; a model file must have one; export it with only its scores"),
        ({}, "segmentation", 3, "has 2 outputs; a model file must have one"),
        ({"order": ("boxes",)}, "segmentation", 4, "a segmentation of 4 classes gives logits [4, rows, columns] or"),
    ],
)
def test_files_of_another_kind_are_one_line(
    options: dict[str, Any], task: Task, classes: int, message: str, tmp_path: Path
) -> None:
    path = models.onnx(tmp_path / "two.onnx", **options)
    with pytest.raises(ModelError) as caught:
        answers(path, models.images(), task, classes)
    assert message in str(caught.value) and str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
