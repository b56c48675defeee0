"""Small networks of two heads over pictures, as files of several frameworks, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgekit.runner.boxes import BOX_SIDES, BoxOptions, Decoder

SHAPE = (32, 48)
POINTS = 8 * 12 + 4 * 6 + 2 * 3
"""Cells of 4, 8 and 16 pixels."""
LABELS = ("red", "white", "platelet")
GRID = (8, 12)


def heads(classes: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Weights (3, points · width) from the mean of each colour, and biases, of `boxes` and `scores`."""
    random = np.random.default_rng(5)
    scores = random.normal(0, 4, (3, POINTS * classes)).astype(np.float32)
    return {
        "boxes": (random.normal(0, 0.3, (3, POINTS * BOX_SIDES)).astype(np.float32), np.array([1.0], np.float32)),
        "scores": (scores, np.array([-2.0], np.float32)),
    }


def expected_outputs(images: np.ndarray, classes: int = 3) -> np.ndarray:
    """(n, points, 4 + classes) of images of bytes."""
    means = images.astype(np.float64).mean(axis=(1, 2)) / 255
    parts = [means @ weights + bias for weights, bias in heads(classes).values()]
    return np.concatenate([part.reshape(len(images), POINTS, -1) for part in parts], axis=2).astype(np.float32)


def expected_boxes(images: np.ndarray, threshold: float = 0.5, classes: int = 3) -> list[list[tuple[int, list[float]]]]:
    """Of each image, class and sides of its boxes."""
    decode = Decoder(SHAPE, POINTS, BoxOptions(threshold))
    each = map(decode, expected_outputs(images, classes))
    return [list(zip(one.classes.tolist(), one.sides.tolist(), strict=True)) for one in each]


def images(count: int = 6) -> np.ndarray:
    random = np.random.default_rng(2)
    bright = random.uniform(0.1, 1, (count, 1, 1, 3))
    return (random.integers(0, 256, (count, *SHAPE, 3)) * bright).astype(np.uint8)


def pictures(folder: Path, count: int = 6) -> Path:
    folder.mkdir(exist_ok=True)
    for number, image in enumerate(images(count)):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


def onnx(
    path: Path, order: Sequence[str] = ("boxes", "scores"), classes: int = 3, batch: int | str = 1, end: str = ""
) -> Path:
    """Bytes scaled in front by --preprocess; `end` is an operator behind the scores; `order` may be ("joined",)."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [helper.make_node("ReduceMean", ["input"], ["means"], axes=[2, 3], keepdims=0)]
    constants = []
    for name, (weights, bias) in heads(classes).items():
        width = weights.shape[1] // POINTS
        last = f"{name}_raw" if end and name == "scores" else name
        nodes += [
            helper.make_node("MatMul", ["means", f"{name}_w"], [f"{name}_flat"]),
            helper.make_node("Add", [f"{name}_flat", f"{name}_b"], [f"{name}_sum"]),
            helper.make_node("Reshape", [f"{name}_sum", f"{name}_shape"], [last]),
        ]
        shape = np.array([1 if batch == 1 else -1, POINTS, width])
        arrays = {"w": weights, "b": bias, "shape": shape}
        constants += [numpy_helper.from_array(array, f"{name}_{letter}") for letter, array in arrays.items()]
    if end:
        nodes.append(helper.make_node(end, ["scores_raw"], ["scores"]))
    nodes.append(helper.make_node("Concat", ["boxes", "scores"], ["joined"], axis=2))
    widths = {"boxes": BOX_SIDES, "scores": classes, "joined": BOX_SIDES + classes}
    number = onnx.TensorProto.FLOAT
    source = helper.make_tensor_value_info("input", number, [batch, 3, *SHAPE])
    results = [helper.make_tensor_value_info(name, number, [batch, POINTS, widths[name]]) for name in order]
    graph = helper.make_graph(nodes, "two", [source], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def openvino(path: Path, order: Sequence[str] = ("boxes", "scores")) -> Path:
    import openvino

    model = openvino.Core().read_model(onnx(path.with_suffix(".onnx"), order))
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def keras(order: Sequence[str] = ("boxes", "scores")) -> Any:
    """Channels last, as Keras has it; outputs are a list."""
    import tensorflow as tf

    image_input = tf.keras.Input((*SHAPE, 3), name="picture")
    means = tf.keras.layers.GlobalAveragePooling2D()(image_input)
    outputs = {}
    for name, (weights, bias) in heads().items():
        dense = tf.keras.layers.Dense(weights.shape[1], name=f"{name}_dense")
        outputs[name] = tf.keras.layers.Reshape((POINTS, weights.shape[1] // POINTS), name=name)(dense(means))
        dense.set_weights([weights, np.full(weights.shape[1], bias[0])])
    return tf.keras.Model(image_input, [outputs[name] for name in order])


def tflite(path: Path, order: Sequence[str] = ("boxes", "scores"), integers: bool = False) -> Path:
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(keras(order))
    if integers:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([each[None].astype(np.float32) / 255] for each in images(20))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    path.write_bytes(converter.convert())
    return path


def mask_weights(classes: int = 3) -> np.ndarray:
    """(classes, 3, 4, 4): a convolution of cells of 4 pixels."""
    return np.random.default_rng(8).normal(0, 1, (classes, 3, 4, 4)).astype(np.float32)


def mask(image: np.ndarray) -> np.ndarray:
    """(height, width): the class of each pixel of an image of bytes."""
    rows, columns = GRID
    cells = image.reshape(rows, 4, columns, 4, 3).astype(np.float64) / 255
    logits = np.einsum("rycxk,okyx->orc", cells, mask_weights())
    return logits.argmax(axis=0).repeat(4, 0).repeat(4, 1)


def mask_onnx(path: Path, classes: int = 3, axes: Sequence[int] | None = None) -> Path:
    """(1, classes, rows, columns), or turned."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [helper.make_node("Conv", ["input", "w"], ["grid"], strides=[4, 4], kernel_shape=[4, 4])]
    shape = [1, classes, *GRID]
    order = [0, 1, 2, 3] if axes is None else list(axes)
    nodes.append(helper.make_node("Transpose", ["grid"], ["classes"], perm=order))
    number = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "grid",
        [helper.make_tensor_value_info("input", number, [1, 3, *SHAPE])],
        [helper.make_tensor_value_info("classes", number, [shape[axis] for axis in order])],
        [numpy_helper.from_array(mask_weights(classes), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def mask_keras() -> Any:
    """(1, rows, columns, classes), as Keras has it."""
    import tensorflow as tf

    image_input = tf.keras.Input((*SHAPE, 3), name="picture")
    layer = tf.keras.layers.Conv2D(3, 4, strides=4, use_bias=False)
    model = tf.keras.Model(image_input, layer(image_input))
    layer.set_weights([mask_weights().transpose(2, 3, 1, 0)])
    return model


def mask_tflite(path: Path) -> Path:
    import tensorflow as tf

    path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(mask_keras()).convert())
    return path
