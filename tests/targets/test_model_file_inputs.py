"""Files whose input is not what PyTorch's exporter makes of an image: windows, images with channels last, bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.models.files import keras
from edgekit.stages.convert.numerics import compare
from edgekit.targets import evaluate, model_file
from tests.models.files import files

LEAST_DB = {"fp32": 60, "fp16": 40, "int8": 15, "w8": 20, "dynamic": 20, "int4": 15, "int4_dense": 15, "int16x8": 35}
WINDOW = (20, 6)


class Windows(torch.nn.Module):
    """(n, time, features): a convolution along time, which wants features first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = torch.nn.Conv1d(WINDOW[1], 8, 3), torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.dense(self.conv(x.transpose(1, 2)).relu().mean(2)))


def windows(path: Path) -> tuple[int, ...]:
    """An ONNX file over windows."""
    torch.manual_seed(3)
    torch.onnx.export(Windows().eval(), (torch.zeros(1, *WINDOW),), path, dynamo=True, verbose=False)
    return WINDOW


def channels_last(path: Path) -> tuple[int, ...]:
    """An ONNX file as tf2onnx writes them."""
    path.write_bytes(keras.onnx(files.make("keras", path.parent)))
    return files.SHAPE


def with_a_colon(path: Path) -> tuple[int, ...]:
    """The same, its input called as TensorFlow calls tensors."""
    import onnx

    channels_last(path)
    model = onnx.load(path)
    name, model.graph.input[0].name = model.graph.input[0].name, "input:0"
    for node in model.graph.node:
        node.input[:] = ["input:0" if each == name else each for each in node.input]
    onnx.save(model, path)
    return files.SHAPE


def bytes_of_onnx(path: Path) -> tuple[int, ...]:
    """An ONNX file over bytes, channels first, that scales them itself."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(files.make("onnx", path.parent / "float"))
    name = model.graph.input[0].name
    model.graph.input[0].name = "bytes"
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    model.graph.initializer.append(numpy_helper.from_array(np.array(1 / 255, np.float32), "scale"))
    model.graph.node.insert(0, helper.make_node("Mul", ["cast", "scale"], [name]))
    model.graph.node.insert(0, helper.make_node("Cast", ["bytes"], ["cast"], to=onnx.TensorProto.FLOAT))
    onnx.save(model, path)
    return files.SHAPE


def bytes_of_keras(path: Path) -> tuple[int, ...]:
    """A Keras file over bytes that scales them itself."""
    import tensorflow as tf

    source = tf.keras.Input((16, 16, 3), dtype="uint8")
    tf.keras.Model(source, files.keras()(tf.keras.layers.Rescaling(1 / 255)(source))).save(path)
    return files.SHAPE


@pytest.mark.zoo
@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("onnx", windows),
        ("onnx", channels_last),
        ("onnx", with_a_colon),
        ("onnx", bytes_of_onnx),
        ("keras", bytes_of_keras),
    ],
)
def test_every_precision_answers_as_the_file(
    target: str, kind: str, make: Callable[[Path], tuple[int, ...]], tmp_path: Path
) -> None:
    path = tmp_path / files.NAMES[kind]
    shape = make(path)
    of_bytes = make in (bytes_of_onnx, bytes_of_keras)
    raw: dict[str, Any] = files.RAW if len(shape) == 3 else {"kind": "array", "shape": list(shape), "dtype": "float32"}
    source = store.Source(kind=kind, file=path.name)  # type: ignore[arg-type]
    spec = store.ModelSpec(source=source, input_shape=shape, num_classes=10, classes=files.CLASSES, raw=raw)
    store.save_source(tmp_path / "model", path, spec)
    x = files.samples() if len(shape) == 3 else np.random.default_rng(4).normal(0, 1, (24, *shape)).astype(np.float32)
    x = np.rint(255 * x) if of_bytes else x
    expected = evaluate.torch_outputs(tmp_path / "model", x)
    assert np.ptp(expected, axis=0).max() > 0.01, "the same answer to everything"
    module = importlib.import_module(f"edgekit.targets.{target}.convert")
    for precision in model_file.offered_precisions(target, module.PRECISIONS, tmp_path / "model"):
        made = module.convert(tmp_path / "model", precision, x, tmp_path / precision)
        found = evaluate.file_outputs(kind, target, tmp_path / precision, made, x)
        assert compare(expected, found).snr_db > LEAST_DB[precision], precision
