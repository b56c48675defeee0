"""A detector on an Arm board finds the boxes that it finds on x86-64, and draws them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, drawing, load
from tests.runner.conftest import npy
from tests.runner.test_several_outputs import expected_outputs, files, images, manifest

from .device import Device

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]

TARGETS = {"openvino": "openvino", "onnxruntime": "onnx"}


@pytest.fixture(scope="module")
def detector(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with two outputs for an interpreter."""
    target, folder = TARGETS.get(interpreter, "tflite"), tmp_path_factory.mktemp("detector")
    content = files(target, folder)
    golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}
    path = folder / f"cells-{target}-1.0.0.edge.zip"
    bundle.write(path, manifest(target, content), {**content, **golden})
    return path


def test_its_boxes_and_pictures_are_those_of_x86(device: Device, detector: Path, runner: Path, tmp_path: Path) -> None:
    model = load(detector, trial=False)
    options = ("--interpreter", device.interpreter, "--threads", 1, "--no-trial", "--json")
    for number, sample in enumerate(images(3)):
        np.save(tmp_path / f"{number}.npy", sample)
    done = device.run(runner, "predict", detector, tmp_path, *options, "--draw", tmp_path / "drawn")
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 3 and any(answer["boxes"] for answer in answers)
    for sample, answer in zip(images(3), answers, strict=True):
        here = model.predict(sample)
        assert [each["label"] for each in answer["boxes"]] == [each.label for each in here.boxes]
        np.testing.assert_allclose(
            [each["box"] for each in answer["boxes"]], [each.box for each in here.boxes], atol=0.02
        )
        np.testing.assert_allclose(
            [each["probability"] for each in answer["boxes"]], [each.probability for each in here.boxes], atol=1e-3
        )
        shown = drawing.draw(sample, here, model.manifest)
        same = (np.asarray(Image.open(answer["drawn"])) == shown).all(axis=2)
        assert same.mean() > 0.95, "the same picture but for boxes that are rounded otherwise"
