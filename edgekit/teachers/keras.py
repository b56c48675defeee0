"""Keras files, .keras and the earlier HDF5, by tensorflow.keras on the CPU."""

from __future__ import annotations

import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.teachers.opened import Opened, Run, cast, one_each

UNKNOWN = re.compile(r"(?:Could not locate (?:class|function)|Unknown \w+:?) '?(\w+)")


def open(path: Path, threads: int) -> Opened:
    """The model at `path`; what would run code from the file is refused.

    TensorFlow takes a number of threads before it has done anything, or never; 0 leaves it as it is.
    """
    import tensorflow as tf

    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = _load(tf.keras.models.load_model, path)
    one_each(len(model.inputs), len(model.outputs))
    source = model.inputs[0]

    def run(x: np.ndarray) -> np.ndarray:
        y: np.ndarray = model.predict_on_batch(cast(x, source.dtype))
        return y

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    return Opened(tuple(-1 if side is None else int(side) for side in source.shape), sized)


def _load(load_model: Any, path: Path) -> Any:
    """Keras goes by the file's name, so it gets one that says what the file is."""
    name = "model.keras" if zipfile.is_zipfile(path) else "model.h5"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).symlink_to(path)
        try:
            return load_model(str(Path(folder) / name), compile=False, safe_mode=True)
        except (ValueError, TypeError) as error:
            raise _told(error) from None


def _told(error: Exception) -> Exception:
    """What to do about the faults that Keras tells at length; any other error as it is."""
    said = str(error)
    if "lambda" in said.lower():
        return ModelError(
            "has a Lambda layer, which is code that would run when the file is opened; put one of Keras's own in its "
            "place, such as Rescaling or Resizing, or export it as .tflite or .onnx"
        )
    if unknown := UNKNOWN.search(said):
        return ModelError(f"is made with {unknown[1]}, which Keras does not have; export it as .tflite or .onnx")
    if "No model config" in said:
        return ModelError("holds weights and no model; save the whole of it, with model.save")
    return error
