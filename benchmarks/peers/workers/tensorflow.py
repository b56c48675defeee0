"""Runs in TensorFlow's environment: TFLiteConverter's dynamic range quantization and its two kinds of full int8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx2tf
import tensorflow as tf

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import WorkerJob

PICTURES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""onnx2tf downloads this file unless it is in the current folder, so the worker writes one with random values there."""


def work(job: WorkerJob) -> list[dict[str, Any]]:
    """Make three files from one Keras model. The worker fails if the model cannot be created."""
    model = keras_model(job)
    [port] = model.inputs

    def converter() -> Any:
        spec = tf.TensorSpec(port.shape, port.dtype)
        function = tf.function(lambda x: model(x)).get_concrete_function(spec)
        new_converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
        new_converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return new_converter

    def samples() -> Iterator[list[np.ndarray]]:
        for sample in job.samples_for(port.shape[1:]):
            yield [sample[None]]

    def dynamic(path: Path) -> None:
        path.write_bytes(converter().convert())

    def int8(path: Path) -> None:
        new_converter = converter()
        new_converter.representative_dataset = samples
        path.write_bytes(new_converter.convert())

    def full_int8(path: Path) -> None:
        new_converter = converter()
        new_converter.representative_dataset = samples
        new_converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        new_converter.inference_input_type = new_converter.inference_output_type = tf.int8
        path.write_bytes(new_converter.convert())

    return [
        worker_protocol.make_file(job, "tensorflow-dynamic.tflite", "dynamic range", dynamic),
        worker_protocol.make_file(job, "tensorflow-int8.tflite", "int8, float inputs and outputs", int8),
        worker_protocol.make_file(job, "tensorflow-full-int8.tflite", "int8, inputs and outputs too", full_int8),
    ]


def keras_model(job: WorkerJob) -> Any:
    """Return the baseline as a Keras model, converted by onnx2tf for a batch of one, with channels last for images."""
    model = onnx.load(job.model)
    [port] = model.graph.input
    sides = [side.dim_value for side in port.type.tensor_type.shape.dim[1:]]
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    os.chdir(job.out)
    onnx.save(onnx.shape_inference.infer_shapes(model), "one.onnx")
    np.save(PICTURES, np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32))
    is_channels_first = len(sides) == 3 and tuple(sides) == job.samples.shape[1:]
    return onnx2tf.convert(
        input_onnx_file_path="one.onnx",
        keep_shape_absolutely_input_names=None if is_channels_first else [port.name],
        not_use_onnxsim=True,
        disable_model_save=True,
        non_verbose=True,
    )


if __name__ == "__main__":
    worker_protocol.run_worker(work)
