"""A ReLU goes where the FakeQuantize behind it clamps alike, and nowhere else; the answers are the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.models import store
from edgekit.targets import evaluate
from edgekit.targets.openvino import convert, rewrites

SIDES = 3, 12, 12
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


def quantized(low: float, also: str = "") -> Any:
    """ReLU before a FakeQuantize from `low` to 4; `also` reads the ReLU too."""
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([1, 6], np.float32, name="x")
    relu = ops.relu(x)
    ends = [ops.constant(np.float32(end)) for end in (low, 4.0, low, 4.0)]
    results = [ops.fake_quantize(relu, *ends, 256)]
    if also == "result":
        results.append(relu)
    elif also == "negation":
        results.append(ops.negative(relu))
    return openvino.Model(results, [x], "m")


def kinds(model: Any) -> list[str]:
    return [op.get_type_name() for op in model.get_ordered_ops()]


@pytest.mark.parametrize(
    ("low", "also", "dropped"), [(0.0, "", 1), (0.5, "", 1), (-1.0, "", 0), (0.0, "result", 0), (0.0, "negation", 0)]
)
def test_it_goes_only_where_its_answers_are_clamped_anyway(low: float, also: str, dropped: int) -> None:
    import openvino

    x = np.array([[-3.0, -0.25, 0.0, 0.3, 1.7, 9.0]], dtype=np.float32)
    before = openvino.Core().compile_model(quantized(low, also), "CPU", FLOAT32)(x)
    model = quantized(low, also)
    assert rewrites.drop_relus(model) == dropped
    assert ("Relu" in kinds(model)) == (not dropped)
    after = openvino.Core().compile_model(model, "CPU", FLOAT32)(x)
    assert all(np.array_equal(before[place], after[place]) for place in range(len(model.outputs)))


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
def test_a_network_gives_the_same_bits_without_them(
    residual: bool, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder
    if residual:
        spec = store.ModelSpec(
            builder="edgekit.models.resnet:resnet",
            kwargs={"depth": 8, "width": 8},
            input_shape=SIDES,
            num_classes=4,
            classes=tuple("abcd"),
            raw={"kind": "image", "shape": [12, 12, 3], "dtype": "uint8"},
        )
        folder = tmp_path / "model"
        store.save(folder, store.build(spec, seed=1), spec)
    sides = SIDES if residual else (3, 8, 8)
    inputs = np.random.default_rng(0).normal(size=(24, *sides)).astype(np.float32)
    files = convert.convert(folder, "int8", inputs, tmp_path / "short")
    monkeypatch.setattr(rewrites, "drop_relus", lambda model: 0)
    assert convert.convert(folder, "int8", inputs, tmp_path / "long") == files
    short, long = (
        evaluate.file_outputs("it", "openvino", tmp_path / name, files, inputs) for name in ("short", "long")
    )
    assert np.array_equal(short, long) and len(np.unique(short)) > 20
    xml, longer = ((tmp_path / name / convert.FILES[0]).read_bytes() for name in ("short", "long"))
    assert b'"ReLU"' in longer and b'"ReLU"' not in xml and len(xml) < len(longer)
