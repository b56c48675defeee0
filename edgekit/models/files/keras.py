"""Keras files, .keras and the earlier HDF5, run by tensorflow.keras on the CPU. TensorFlow converts them to TFLite."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConversionError, ModelError
from edgekit.models.files.interface import (
    FileInput,
    OpenedModel,
    Run,
    Tensors,
    check_inputs_and_outputs,
    input_arrays,
    joined_input_shape,
)
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs

UNSUPPORTED_TARGETS: dict[str, str] = {}
TFLITE = ("fp16", "int8", "dynamic")
"""The precisions that TensorFlow's own converter supports, besides fp32."""
ONNX_OPSET = 18
"""The newest opset that tf2onnx 1.17 writes."""
HALVES = ("float16", "bfloat16")
GROUPS, KERNEL = ("groups",), ("groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint")
KERAS_2 = {
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D", "Conv1DTranspose", "Conv2DTranspose"), GROUPS),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), KERNEL),
}
"""Options of layers that Keras 2 wrote although they had no effect, and that Keras 3 refuses."""
UNKNOWN = re.compile(r"(?:Could not locate (?:class|function)|Unknown \w+:?) '?(\w+)")


def is_quantized(path: Path) -> bool:
    """Return False, because a Keras model computes in floats."""
    return False


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """Open the model at `path`; files that would run their own code are refused.

    TensorFlow accepts a number of threads only before its first operation. With 0 threads, the number is not set.
    """
    tf = load_framework()
    if threads:
        _configure(tf, threads)
    model = _read(path)
    inputs = [FileInput(each.name, [-1 if side is None else int(side) for side in each.shape], each.dtype)
              for each in model.inputs]  # fmt: skip
    check_inputs_and_outputs([each.name for each in inputs], len(model.outputs), tensors, needed.max_outputs)

    def for_shape(shape: tuple[int, ...]) -> Run:
        sides = {each["name"]: (shape[0], *each["shape"]) for each in tensors}
        answer = _graph(tf, model, [sides[each.name] for each in inputs] if tensors else [shape])

        def run(x: np.ndarray) -> np.ndarray:
            outputs = answer(*map(tf.constant, input_arrays(x, inputs, tensors).values()))
            return needed.join([each.numpy() for each in tf.nest.flatten(outputs)])

        return run

    return OpenedModel(joined_input_shape(inputs, tensors), for_shape)


def tflite(
    path: Path, precision: str, samples: Mapping[str, np.ndarray] | None, sample_shape: tuple[int, ...]
) -> bytes:
    """Convert the model to TFLite for a batch of one, with TensorFlow's converter.

    `samples` (n, …), by the name of the input, determine the ranges of int8. An int8 file has int8 inputs and outputs,
    or inputs of bytes if the model takes bytes. The converter fails unless every operator can be int8.
    """
    tf, model = load_framework(), _read(path)
    ones = [tf.keras.Input(shape[1:], batch_size=1, dtype=each.dtype, name=each.name)
            for each, shape in zip(model.inputs, _single_sample_shapes(model), strict=True)]  # fmt: skip
    inputs = ones if len(ones) > 1 else ones[0]
    converter = tf.lite.TFLiteConverter.from_keras_model(tf.keras.Model(inputs, model(inputs)))
    if precision != "fp32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "fp16":
        converter.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        if samples is None:
            raise ConversionError("tflite int8: no calibration samples")
        converter.representative_dataset = lambda: _one_by_one(samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_output_type = tf.int8
        dtypes = [tf.as_dtype(each.dtype) for each in model.inputs]
        converter.inference_input_type = tf.int8 if any(each.is_floating for each in dtypes) else dtypes[0]
    return bytes(converter.convert())


def _one_by_one(samples: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """Yield the samples for the converter. Several inputs are given by name, because the converter sorts the names."""
    for index in range(len(next(iter(samples.values())))):
        sample = {name: part[index : index + 1] for name, part in samples.items()}
        yield sample if len(sample) > 1 else list(sample.values())


def onnx(path: Path) -> bytes:
    """Convert the model to ONNX for a batch of one, with tf2onnx; images stay channels last, as in Keras."""
    tf = load_framework()
    import tf2onnx

    model = _read(path)
    sources = _specs(tf, model, _single_sample_shapes(model))
    answer = tf.function(_caller(model), autograph=False, input_signature=sources)
    converted, _ = tf2onnx.convert.from_function(
        answer, input_signature=sources, opset=ONNX_OPSET, custom_op_handlers={"Erfc": (_erfc, [])}
    )
    return bytes(converted.SerializeToString(deterministic=True))


def _erfc(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Replace Erfc, which TensorFlow uses for GELU, by 1 - Erf: ONNX has no Erfc, but tf2onnx would write it."""
    users = graph.find_output_consumers(node.output[0])
    one = graph.make_const(f"{name}/one", np.ones((), np.float32))
    node.type = "Erf"
    rest = graph.make_node("Sub", [one.output[0], node.output[0]], name=f"{name}/erfc")
    graph.replace_all_inputs(node.output[0], rest.output[0], ops=users)


def openvino(path: Path, names: Sequence[str] = ()) -> Any:
    """Convert the model to an `openvino.Model` for a batch of one, by way of a SavedModel.

    OpenVINO cannot take a Keras model itself on Python 3.13, because its `exec("del tensorflow")` does not see what an
    earlier `exec` has bound there (PEP 667).
    """
    import openvino as ov

    tf, model = load_framework(), _read(path)
    module = tf.Module()
    module.model = model  # keeps the variables
    with tempfile.TemporaryDirectory(prefix="edgekit-keras-") as folder:
        tf.saved_model.save(module, folder, signatures=_graph(tf, model, _single_sample_shapes(model)))
        converted = ov.convert_model(folder)
    if len(model.inputs) == 1:
        return converted
    ports = [converted.input(each.name) for each in model.inputs]  # they are sorted by name in a SavedModel
    return ov.Model(converted.outputs, [port.get_node() for port in ports])


def _configure(tf: Any, threads: int) -> None:
    """Use the CPU only, with a number of threads; TensorFlow accepts both only before its first operation."""
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _single_sample_shapes(model: Any) -> list[tuple[int, ...]]:
    """Return the shape of each input for a batch of one."""
    return [(1, *(int(side) for side in each.shape[1:])) for each in model.inputs]


def _caller(model: Any) -> Any:
    """Return the model as a function of its inputs."""
    return lambda *inputs: model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)


def _specs(tf: Any, model: Any, shapes: Sequence[Sequence[int]]) -> list[Any]:
    """Return the input signature of the model's graph; a single input is called "input"."""
    names = [each.name for each in model.inputs] if len(shapes) > 1 else ["input"]
    return [tf.TensorSpec(shape, each.dtype, name=name)
            for shape, each, name in zip(shapes, model.inputs, names, strict=True)]  # fmt: skip


def _graph(tf: Any, model: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """Return the graph for inputs of exactly these shapes. Keras's `predict` runs the same graph, with callbacks."""
    return tf.function(_caller(model), autograph=False).get_concrete_function(*_specs(tf, model, shapes))


def load_framework() -> Any:
    """Import TensorFlow with its own Keras 3, whichever Keras the user's environment selects."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.pop("TF_USE_LEGACY_KERAS", None)
    import tensorflow as tf

    return tf


def _read(path: Path) -> Any:
    tf = load_framework()
    warnings.filterwarnings("ignore", "The structure of `inputs` doesn't match")  # a tensor in place of a list of one

    with contextlib.ExitStack() as stack:
        for name, options in KERAS_2.items():
            stack.enter_context(_leaving_out(options, getattr(tf.keras.layers, name)))
        model = _load(tf.keras.models.load_model, path)
        if any(layer.compute_dtype in HALVES for layer in _layers(model)):
            model = _as_float32(tf, model)
    for layer in _layers(model):
        _hold_arrays(tf, layer)
    return model


def _layers(model: Any) -> Iterator[Any]:
    """Yield every layer of a model, including those of models and wrappers inside it."""
    for layer in (*getattr(model, "layers", ()), *filter(None, (getattr(model, "layer", None),))):
        yield layer
        yield from _layers(layer)


def _as_float32(tf: Any, model: Any) -> Any:
    """Return the model without `mixed_float16`, a policy for training on GPUs; the weights are float32 already."""
    saving = tf.keras.utils
    config = json.dumps(saving.serialize_keras_object(model))
    for name in HALVES:
        config = config.replace(f'"mixed_{name}"', '"float32"').replace(f'"{name}"', '"float32"')
    converted = saving.deserialize_keras_object(json.loads(config))
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "model.weights.h5")
        model.save_weights(weights)
        converted.load_weights(weights)
    return converted


def _hold_arrays(tf: Any, layer: Any) -> None:
    """Replace tensors that a layer holds besides its weights by arrays, in place.

    Such a tensor, for example the mean of Normalization, would become an input of an ONNX file.
    """
    for name, value in list(vars(layer).items()):
        if isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            setattr(layer, name, value.numpy())


@contextlib.contextmanager
def _leaving_out(options: Sequence[str], layer: Any) -> Iterator[None]:
    """Ignore some options of a layer while a file is read inside the context."""
    inherited = layer.from_config.__func__

    def without(cls: Any, config: dict[str, Any]) -> Any:
        return inherited(cls, {name: value for name, value in config.items() if name not in options})

    layer.from_config = classmethod(without)
    try:
        yield
    finally:
        del layer.from_config


def _load(load_model: Any, path: Path) -> Any:
    """Load a file under a name with the right suffix, because Keras tells the two formats apart by the suffix."""
    name = "model.keras" if zipfile.is_zipfile(path) else "model.h5"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).symlink_to(path.absolute())
        try:
            return load_model(str(Path(folder) / name), compile=False, safe_mode=True)
        except (ValueError, TypeError) as error:
            raise _load_error(error) from None


def _load_error(error: Exception) -> Exception:
    """Return an error with advice for the known faults; for others, only the end of Keras's long message."""
    message = str(error)
    if "Python lambda" in message:
        return ModelError(
            "has a Lambda layer, which is code that would run when the file is opened; put one of Keras's own in its "
            "place, such as Rescaling or Resizing, or export it as .tflite or .onnx"
        )
    if unknown := UNKNOWN.search(message):
        return ModelError(f"is made with {unknown[1]}, which Keras does not have; export it as .tflite or .onnx")
    if "No model config" in message:
        return ModelError("holds weights but no model; save the complete model with model.save")
    return ValueError(message.rpartition("Exception encountered: ")[2])
