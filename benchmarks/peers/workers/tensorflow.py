"""Runs in TensorFlow's environment: TFLiteConverter's dynamic range and both of its kinds of full int8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx2tf
import tensorflow as tf

from benchmarks.peers import given
from benchmarks.peers.given import Given

PICTURES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""onnx2tf would download them, unless a file of this name lies in the folder it runs in."""


def work(to: Given) -> list[dict[str, Any]]:
    """Three files of one Keras model; if that cannot be made, the worker fails."""
    model = keras_model(to)
    [port] = model.inputs

    def converter() -> Any:
        spec = tf.TensorSpec(port.shape, port.dtype)
        function = tf.function(lambda x: model(x)).get_concrete_function(spec)
        made = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
        made.optimizations = [tf.lite.Optimize.DEFAULT]
        return made

    def samples() -> Iterator[list[np.ndarray]]:
        for sample in to.samples_for(port.shape[1:]):
            yield [sample[None]]

    def dynamic(path: Path) -> None:
        path.write_bytes(converter().convert())

    def int8(path: Path) -> None:
        made = converter()
        made.representative_dataset = samples
        path.write_bytes(made.convert())

    def full_int8(path: Path) -> None:
        made = converter()
        made.representative_dataset = samples
        made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        made.inference_input_type = made.inference_output_type = tf.int8
        path.write_bytes(made.convert())

    return [
        given.made(to, "tensorflow-dynamic.tflite", "dynamic range", dynamic),
        given.made(to, "tensorflow-int8.tflite", "int8, float inputs and outputs", int8),
        given.made(to, "tensorflow-full-int8.tflite", "int8, inputs and outputs too", full_int8),
    ]


def keras_model(to: Given) -> Any:
    """The baseline in Keras by onnx2tf, for a batch of one; images stand channels last."""
    model = onnx.load(to.model)
    [port] = model.graph.input
    sides = [side.dim_value for side in port.type.tensor_type.shape.dim[1:]]
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    os.chdir(to.out)
    onnx.save(onnx.shape_inference.infer_shapes(model), "one.onnx")
    np.save(PICTURES, np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32))
    first = len(sides) == 3 and tuple(sides) == to.samples.shape[1:]
    return onnx2tf.convert(
        input_onnx_file_path="one.onnx",
        keep_shape_absolutely_input_names=None if first else [port.name],
        not_use_onnxsim=True,
        disable_model_save=True,
        non_verbose=True,
    )


if __name__ == "__main__":
    given.answer(work)
