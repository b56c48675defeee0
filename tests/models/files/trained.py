"""Files of networks that know the tiny config's digits: the baseline of the shared run, and one of Keras' own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import yaml

from edgekit.models import store
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY
from tests.models.files.files import NAMES


def make(kind: str, baseline: Path, folder: Path) -> Path:
    """The file in `folder`; `baseline` is the folder of the shared run's saved network."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAMES[kind]
    if kind == "keras":
        _keras(path)
        return path
    module, spec = store.load(baseline)
    example = (torch.zeros(1, *spec.input_shape),)
    if kind == "exported":
        torch.export.save(torch.export.export(module, example), str(path))
    elif kind == "onnx":
        torch.onnx.export(module, example, path, dynamo=True, verbose=False, external_data=False)
    else:
        _converted(path, baseline)
    return path


def of_bytes(kind: str, baseline: Path, folder: Path) -> Path:
    """The file of a network that takes the pictures' bytes, uint8, and scales them itself."""
    path = make(kind, baseline, folder / "float")
    scale, mean, std = 1 / 255, 0.3053, 0.3238  # the steps of the tiny config
    made = folder / NAMES[kind]
    if kind == "keras":
        import tensorflow as tf

        source = tf.keras.Input((32, 32, 1), dtype="uint8")
        scaled = tf.keras.layers.Rescaling(scale / std, offset=-mean / std)(source)
        tf.keras.Model(source, tf.keras.models.load_model(path)(scaled)).save(made)
        return made
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    name = model.graph.input[0].name
    model.graph.input[0].name = "bytes"
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    for called, value in (("factor", scale / std), ("shift", -mean / std)):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), called))
    first = [
        helper.make_node("Cast", ["bytes"], ["cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["cast", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], [name]),
    ]
    for place, node in enumerate(first):
        model.graph.node.insert(place, node)
    onnx.save(model, made)
    return made


def config(model: Path, folder: Path, **changes: Any) -> Path:
    """The tiny config with the file as its model, written into `folder`; a section that is None is left out."""
    values = yaml.safe_load(TINY.read_text())
    values |= {"name": "given", "model": {"source": str(model)}}
    for section, options in changes.items():
        values[section] = {**values[section], **options} if isinstance(options, dict) and section in values else options
    path = folder / "given.yaml"
    path.write_text(yaml.safe_dump({name: options for name, options in values.items() if options is not None}))
    return path


def _converted(path: Path, baseline: Path) -> None:
    from edgekit.targets.openvino import convert as openvino
    from edgekit.targets.tflite import convert as tflite

    target = tflite if path.suffix == ".tflite" else openvino
    for name in target.convert(baseline, "fp32", None, path.parent / "converted").names:
        (path.parent / "converted" / name).replace(path.with_suffix(Path(name).suffix))


def _keras(path: Path) -> None:
    """Two convolutions and a dense layer, trained for a few seconds; it ends in a softmax."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from edgekit.data import load
    from edgekit.runner.preprocess.transform import apply

    plan = load_plan(TINY)
    train = load(plan.data).train
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(2)
    made = tf.keras.Sequential(
        [
            layers.Input((32, 32, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(4),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    made.compile(tf.keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    made.fit(apply(plan.run.preprocess, train.x), train.y, batch_size=32, epochs=12, verbose=0)
    made.save(path)
