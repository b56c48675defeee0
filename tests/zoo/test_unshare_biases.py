"""Networks of `transformers` and users' own that one converter stumbled over, each for a cause that is ours to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.stages.convert import numerics
from edgekit.targets import evaluate
from edgekit.targets.onnx import convert as onnx
from edgekit.targets.tflite import convert as tflite
from tests.zoo.entries import ENTRIES

pytestmark = pytest.mark.zoo


@pytest.mark.parametrize(
    ("name", "target", "precision", "least_db"),
    [
        ("Swin, transformers", "onnx", "fp32", 60),  # torch's fused attention leaves strides that a view refuses
        ("PoolFormer, transformers", "onnx", "int8", 20),  # a copy of a shared bias took another tensor's name
        ("ConvNeXt, own layer scale", "tflite", "int8", 20),  # a bias of four axes
    ],
)
def test_it_is_made_and_says_the_same(name: str, target: str, precision: str, least_db: float, tmp_path: Path) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    entry.save(tmp_path / "model")
    x = entry.samples()
    convert = {"onnx": onnx, "tflite": tflite}[target].convert
    files = convert(tmp_path / "model", precision, x, tmp_path / "made")
    outputs = evaluate.file_outputs(name, target, tmp_path / "made", files, x)
    assert numerics.compare(evaluate.torch_outputs(tmp_path / "model", x), outputs).snr_db > least_db
