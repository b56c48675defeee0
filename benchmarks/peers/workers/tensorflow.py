"""Runs in TensorFlow's environment: TFLiteConverter's dynamic range and both of its kinds of full int8."""

from __future__ import annotations

import os
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
    """Three files of one SavedModel; if that cannot be made, the worker fails."""
    saved = saved_model(to)

    def converter() -> Any:
        made = tf.lite.TFLiteConverter.from_saved_model(str(saved))
        made.optimizations = [tf.lite.Optimize.DEFAULT]
        return made

    def int8(path: Path, whole: bool) -> None:
        made = converter()
        made.representative_dataset = lambda: samples(to, saved)
        if whole:
            made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            made.inference_input_type = made.inference_output_type = tf.int8
        path.write_bytes(made.convert())

    return [
        given.made(
            to, "tensorflow-dynamic.tflite", "dynamic range", lambda path: path.write_bytes(converter().convert())
        ),
        given.made(to, "tensorflow-int8.tflite", "int8, both ends float", lambda path: int8(path, False)),
        given.made(to, "tensorflow-full-int8.tflite", "int8, both ends too", lambda path: int8(path, True)),
    ]


def saved_model(to: Given) -> Path:
    """The folder of a SavedModel; images stand channels last."""
    model = onnx.load(to.model)
    port = model.graph.input[0]
    sides = [side.dim_value for side in port.type.tensor_type.shape.dim[1:]]
    first = len(sides) == 3 and tuple(sides) == to.samples.shape[1:]
    os.chdir(to.out)
    np.save(PICTURES, np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32))
    onnx2tf.convert(
        input_onnx_file_path=str(to.model),
        output_folder_path="saved",
        output_signaturedefs=True,
        batch_size=1,
        keep_shape_absolutely_input_names=None if first else [port.name],
        not_use_onnxsim=True,
        non_verbose=True,
    )
    return to.out / "saved"


def samples(to: Given, saved: Path) -> Any:
    """Calibration samples as the SavedModel takes them."""
    _, ends = tf.saved_model.load(str(saved)).signatures["serving_default"].structured_input_signature
    [spec] = ends.values()
    for sample in to.samples_for(spec.shape[1:]):
        yield [sample[None]]


if __name__ == "__main__":
    given.answer(work)
