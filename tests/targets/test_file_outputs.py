"""Files of detectors and segmenters made into each target: outputs in the order of their task, on real interpreters."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.tasks import Task
from edgekit.models import store
from edgekit.runner.backends import open_backend
from tests.cli import several_outputs as models
from tests.cli.several_outputs import GRID, LABELS, SHAPE

pytestmark = pytest.mark.zoo

SWAPPED = ("scores", "boxes")


def saved(path: Path, kind: Any, task: Task, folder: Path) -> Path:
    """The file as a run's saved network."""
    spec = store.ModelSpec(
        source=store.Source(kind=kind, file=path.name), input_shape=(3, *SHAPE), num_classes=3, classes=LABELS,
        task=task, raw={"kind": "image", "shape": [*SHAPE, 3], "dtype": "uint8"},
    )  # fmt: skip
    store.save_source(folder, path, spec)
    return folder


def answers(target: str, folder: Path, out: Path) -> np.ndarray:
    """Of the target's float file, through the runner, to the pictures."""
    files = importlib.import_module(f"edgekit.targets.{target}.convert").convert(folder, "fp32", None, out)
    content = {name: (out / name).read_bytes() for name in files.names}
    backend = open_backend(target, content, files.inputs, files.outputs)
    x = models.images().astype(np.float32) / 255
    if files.inputs[0].layout == "NCHW":
        x = x.transpose(0, 3, 1, 2)
    return np.concatenate([backend.run(np.ascontiguousarray(each[None])) for each in x])


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_keras_detector_becomes_every_target(target: str, tmp_path: Path) -> None:
    """Its converters give outputs an order and names of their own."""
    path = tmp_path / "two.keras"
    models.keras(SWAPPED).save(path)
    folder = saved(path, "keras", "detection", tmp_path / "model")
    np.testing.assert_allclose(answers(target, folder, tmp_path), models.expected_outputs(models.images()), atol=1e-3)


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_an_onnx_detector_with_its_scores_first(target: str, tmp_path: Path) -> None:
    folder = saved(models.onnx(tmp_path / "two.onnx", SWAPPED), "onnx", "detection", tmp_path / "model")
    np.testing.assert_allclose(answers(target, folder, tmp_path), models.expected_outputs(models.images()), atol=1e-3)


@pytest.mark.parametrize("target", ["tflite", "openvino"])
def test_a_tflite_detector_with_its_scores_first(target: str, tmp_path: Path) -> None:
    folder = saved(models.tflite(tmp_path / "two.tflite", SWAPPED), "tflite", "detection", tmp_path / "model")
    np.testing.assert_allclose(answers(target, folder, tmp_path), models.expected_outputs(models.images()), atol=1e-3)


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_keras_segmenter_has_its_classes_in_front_of_every_target(target: str, tmp_path: Path) -> None:
    path = tmp_path / "masks.keras"
    models.mask_keras().save(path)
    folder = saved(path, "keras", "segmentation", tmp_path / "model")
    found = answers(target, folder, tmp_path)
    assert found.shape == (len(models.images()), 3, *GRID)
    cells = found.argmax(axis=1).repeat(4, 1).repeat(4, 2)
    assert np.array_equal(cells, np.stack([models.mask(image) for image in models.images()]))


@pytest.mark.parametrize("task", ["detection", "segmentation"])
def test_the_saved_file_is_the_network_that_teaches(task: Task, tmp_path: Path) -> None:
    """Opened again as every stage opens it, its answers are those of its own framework."""
    import torch

    path = tmp_path / "net.keras"
    (models.keras(SWAPPED) if task == "detection" else models.mask_keras()).save(path)
    network, _ = store.load(saved(path, "keras", task, tmp_path / "model"))
    x = torch.from_numpy(models.images(40).transpose(0, 3, 1, 2).astype(np.float32) / 255)
    found = network(x).numpy()
    if task == "detection":
        np.testing.assert_allclose(found, models.expected_outputs(models.images(40)), atol=1e-3)
    else:
        assert found.shape == (40, 3, *GRID)
