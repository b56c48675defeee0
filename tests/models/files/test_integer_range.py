"""Values that an integer input cannot hold are reported with a step that repairs it and passes the bytes on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from edgekit.core.errors import ModelError
from edgekit.models.files import tflite
from edgekit.models.files.interface import QuantizationGrid, range_ambiguity, range_fault
from edgekit.runner.preprocess.transform import apply
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.runner import integers

SHAPE = (4, 4, 3)
BYTES = np.random.default_rng(1).integers(0, 256, (64, *SHAPE)).astype(np.uint8)
STEP = re.compile(r"\{step: [^}]*\}")


@pytest.mark.parametrize(
    "grid",
    [
        QuantizationGrid("uint8", 1 / 255, 0),
        QuantizationGrid("int8", 1 / 255, -128),
        QuantizationGrid("int8", 0.0078125, 0),
        QuantizationGrid("uint8", 0.0078125, 128),
        QuantizationGrid("uint8", 2 / 255, 127),
        QuantizationGrid("int8", 0.0186584, -14),
    ],
)
def test_the_step_that_is_named_hands_the_bytes_through(grid: QuantizationGrid, tmp_path: Path) -> None:
    """By the interpreter's own quantization: every byte arrives as itself, or less 128."""
    message = range_fault(grid, BYTES.astype(np.float32), "uint8", [])
    step = yaml.safe_load(STEP.findall(message)[0])
    path = tmp_path / "made.tflite"
    path.write_bytes(integers.tflite(SHAPE, grid.dtype, grid.scale, grid.zero_point))
    every = np.resize(np.arange(256, dtype=np.uint8), (16, *SHAPE))
    expected = every if grid.dtype == "uint8" else (every.astype(np.int16) - 128).astype(np.int8)
    run = tflite.open(path, 1).for_shape((1, *SHAPE))
    found = np.concatenate([run(apply([step], sample[None])) for sample in every])
    assert np.array_equal(found, integers.bare(path.read_bytes(), expected))
    assert not range_fault(grid, apply([step], BYTES), "uint8", [step])


def test_ranges_that_were_calibrated_are_no_fault() -> None:
    values = np.random.default_rng(2).normal(0, 1, 20_000).astype(np.float32)
    for most in (3.0, 6.0, 40.0):  # some values are clipped; all are held; outliers have widened the range
        assert not range_fault(QuantizationGrid("int8", 2 * most / 255, 0), values, "float32", [])
    assert "the samples as they were" in range_fault(
        QuantizationGrid("int8", 1 / 255, -128), 100 + values, "float32", []
    )
    silence = np.zeros(10, np.float32)
    assert not range_fault(QuantizationGrid("int8", 0.1, 3), silence, "float32", [])


def test_bytes_that_were_scaled_for_a_file_that_takes_bytes() -> None:
    steps = [{"step": "scale", "factor": 1 / 255}]
    message = range_fault(QuantizationGrid("uint8"), apply(steps, BYTES), "uint8", steps)
    assert message.endswith("leave out the steps that scale")
    message = range_fault(QuantizationGrid("int8", 0.0078125, 0), apply(steps, BYTES) * 1000, "uint8", steps)
    assert "replace the steps that scale by {step: normalize, mean: [128.0], std: [128.0]}" in message


def test_bytes_that_mean_other_bytes_are_unclear() -> None:
    """255 is 254 by the scale 1.004 of a file, and 255 where bytes go in as they are."""
    assert "{step: scale, factor: 1.004}" in range_ambiguity(QuantizationGrid("uint8", 1.004, 0), "uint8", [])
    assert range_ambiguity(QuantizationGrid("uint8", 1.004, 0), "uint8", [{"step": "resize", "height": 4, "width": 4}])
    for grid, steps in (
        (QuantizationGrid("uint8"), []),
        (QuantizationGrid("int8", 1.004, -128), []),
        (QuantizationGrid("uint8", 1.004), [{"step": "scale", "factor": 1.0}]),
    ):
        assert not range_ambiguity(grid, "uint8", steps)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("int8", -128)])
def test_a_model_file_whose_bytes_would_saturate_is_refused_with_the_step(
    dtype: str, zero: int, tmp_path: Path
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(integers.tflite(SHAPE, dtype, 1 / 255, zero))
    with pytest.raises(ModelError) as caught:
        logits_and_facts(open_file(path), BYTES, classes=3, timeout_s=60)
    message = str(caught.value)
    assert "from 0 to 1, and the preprocess makes 0 to 255" in message
    step = yaml.safe_load(STEP.findall(message)[0])
    found, facts = logits_and_facts(open_file(path, [step]), BYTES, classes=3, timeout_s=60)
    inside = BYTES if dtype == "uint8" else (BYTES.astype(np.int16) - 128).astype(np.int8)
    assert np.array_equal(found, integers.bare(path.read_bytes(), inside))
    assert facts["integers"]


def test_a_baseline_may_not_mean_other_bytes_than_the_device(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(integers.tflite(SHAPE, "uint8", 1.004, 0))
    with pytest.raises(ModelError, match=r"net\.tflite: .*leaves bytes unchanged; .*\{step: scale, factor: 1\.004\}"):
        logits_and_facts(open_file(path), BYTES, classes=3, timeout_s=60)
    step = {"step": "scale", "factor": 1.004}
    found, _ = logits_and_facts(open_file(path, [step]), BYTES, classes=3, timeout_s=60)
    assert np.array_equal(found, integers.bare(path.read_bytes(), BYTES))
