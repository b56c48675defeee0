"""Specs of a bundle with one input, from the tensors of the model and the user's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.cli.bundle.options import BundleOptions
from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files.interface import QuantizationGrid
from edgekit.models.files.onnx_batch import CHANNELS, image_axes
from edgekit.models.files.task_outputs import TWO_SCORES
from edgekit.runner import input_path
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.bundle.manifest_rules import KINDS, TENSOR_DTYPES, TOKEN_ID_DTYPES
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps
from edgekit.runner.rules import is_integer

INTEGERS = ("int8", "uint8")
SUPPORTED_DTYPES = tuple(dtype for dtype in TENSOR_DTYPES if dtype != "int16")
"""Supported dtypes of a ready-made file. int16 is excluded, because such inputs from other tools are untested."""
ONNX_FIX = "python -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param NAME --dim_value SIZE MODEL FIXED"


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model.

    An open dimension of `shape` is -1. Quantized integers have a `scale`; for floats and plain integers it is 0.
    `title` is the name that sample files use, if it differs from `name`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
    title: str = ""

    @property
    def grid(self) -> QuantizationGrid | None:
        """The values that 8-bit integers can represent, or None for other types."""
        return QuantizationGrid(self.dtype, self.scale or 1.0, self.zero_point) if self.dtype in INTEGERS else None


def input_spec(tensor: ModelTensor, layout: str | None) -> TensorSpec:
    """Return the spec of the model's input: an image with channels last or first, [1, features] or [1, time, channels].

    Raises
    ------
    ConfigError
        `layout` is missing or does not fit the shape.
    ModelError
        No bundle can have such an input.
    """
    check_tensor("input", tensor)
    shape = tensor.shape
    if tensor.dtype in TOKEN_ID_DTYPES:
        raise ModelError(
            f"input {tensor.name}: takes {tensor.dtype}{list(shape)}; a single input must be of floats or "
            f"8-bit integers (token ids are possible only if `edgekit run` learns from texts); export the "
            f"model with a Cast from float32 in front, and give the range of the ids with --range LOW,HIGH"
        )
    if len(shape) in (2, 3):
        if layout:
            raise ConfigError(f"--layout {layout}: the model takes {list(shape)}, which is not an image; leave it out")
        return TensorSpec(tensor.name, shape, tensor.dtype, "NC" if len(shape) == 2 else "ANY")
    if len(shape) != 4:
        raise ModelError(
            f"input {tensor.name}: takes {list(shape)}; a bundle's model takes [1, features], [1, time, "
            f"channels] or a batch of 1 image"
        )
    possible = [name for name, axis in (("NHWC", 3), ("NCHW", 1)) if shape[axis] in CHANNELS]
    if not possible:
        raise ModelError(f"input {tensor.name}: takes {list(shape)}; images have 1 or 3 channels, first or last")
    if layout is None and len(possible) == 2:
        raise ConfigError(f"input {tensor.name}: takes {list(shape)}: choose one with --layout NHWC or NCHW")
    if layout is not None and layout not in possible:
        raise ConfigError(f"--layout {layout}: the model takes {list(shape)}, which is {possible[0]}; leave it out")
    return TensorSpec(tensor.name, shape, tensor.dtype, layout or possible[0])


def output_spec(tensor: ModelTensor, options: BundleOptions) -> TensorSpec:
    """Return the spec of the model's output.

    Raises
    ------
    ConfigError
        The task or the labels do not fit it.
    """
    check_tensor("output", tensor)
    shape = tensor.shape
    if options.task == "raw" or (options.task == "embedding" and len(shape) == 2):
        return TensorSpec(tensor.name, shape, tensor.dtype, "NC" if len(shape) == 2 else "ANY")
    if len(shape) != 2:
        raise ConfigError(
            f"--task {options.task}: needs [1, values], but the model gives {list(shape)}; use --task raw"
        )
    if options.task == "classification" and shape[1] < 2:
        raise ConfigError(
            "--task classification: the model gives one value, not a score for each class; if that is "
            "the probability of one of two classes, use --task regression with its name in --labels, or "
            f"let the model end in both: {TWO_SCORES}"
        )
    if not options.labels:
        raise ConfigError(f"--labels: name the {shape[1]} values that the model gives, or use --task raw")
    if len(options.labels) != shape[1]:
        raise ConfigError(
            f"--labels: {len(options.labels)} labels ({options.labels[0]} … {options.labels[-1]}), but "
            f"the model gives {shape[1]} values; name each once, in the model's order"
        )
    return TensorSpec(tensor.name, shape, tensor.dtype, "NC")


def raw_spec(
    options: BundleOptions, source: TensorSpec, array_dtype: str | None = None, is_stream: bool = False
) -> RawSpec:
    """Return the spec of the raw sample.

    `array_dtype` is the dtype of the first array among the inputs. If the model takes integers of this dtype, raw
    samples have it as well. `is_stream` means that the model has states, so a recording is read window by window
    without overlap.

    Raises
    ------
    ConfigError
        The preprocessing steps do not turn raw samples into the model's input, or an option does not fit.
    """
    model_shape, mel = _channels_last_shape(source), _first_log_mel(options)
    implied_kind = "audio" if mel else {3: "image", 2: "window"}.get(len(model_shape))
    kind = options.kind or implied_kind or ("audio" if options.sample_rate_hz else "vector")
    if len(model_shape) != (3 if mel and kind == "audio" else KINDS[kind]):
        raise ConfigError(f"--kind {kind}: the model takes {list(source.shape)}, which does not fit that kind")
    if kind == "audio" and options.sample_rate_hz is None:
        raise ConfigError("--sample-rate: is missing; audio needs it, in samples per second")
    if kind != "audio" and options.sample_rate_hz is not None:
        raise ConfigError(f"--sample-rate: applies only to audio, and the samples are of kind {kind}; leave it out")
    if kind == "image":
        shape = _raw_image_shape(options, model_shape)
    elif options.size is not None:
        raise ConfigError(f"--size: applies only to images, and the samples are of kind {kind}; leave it out")
    elif mel:
        shape = (mel["window_samples"] + (model_shape[0] - 1) * mel["hop_samples"],)
    else:
        shape = model_shape
    is_float = kind != "image" or options.range is not None
    can_be_integers = kind != "audio" and not options.range and source.dtype in INTEGERS
    default_dtype = "float32" if is_float else "uint8"
    dtype = options.dtype or (source.dtype if can_be_integers and array_dtype == source.dtype else default_dtype)
    if dtype != "float32" and (options.range or kind == "audio" or (kind == "window" and dtype != source.dtype)):
        hint = f", and the model's are {source.dtype}" if kind == "window" else ""
        raise ConfigError(f"--dtype {dtype}: audio, windows and samples with a --range are float32{hint}; leave it out")
    try:
        output_shape = steps.check(options.preprocess, shape, dtype)
    except InputError as error:
        raise ConfigError(f"--{error}") from None
    if output_shape != model_shape:
        raise ConfigError(
            f"--preprocess: turns raw samples {list(shape)} into {list(output_shape)}, but the model "
            f"takes {list(model_shape)}; add a resize or channels step, or give the size of raw samples with --size"
        )
    if options.columns and (kind not in ("vector", "window") or dtype != "float32"):
        raise ConfigError(
            f"--columns: a table holds float32 vectors and windows, but the samples are {kind} {dtype}; leave it out"
        )
    if options.columns and len(options.columns) != shape[-1]:
        raise ConfigError(
            f"--columns: got {len(options.columns)} names, but the model takes {shape[-1]} columns; name each once"
        )
    if options.fit and (kind != "image" or dtype != "uint8"):
        raise ConfigError(
            f"--fit {options.fit}: pictures in files are uint8, but the samples are {kind} {dtype}; leave it out"
        )
    value_range = (-1.0, 1.0) if kind == "audio" and options.range is None else options.range
    columns = options.columns or None
    path_steps = (
        input_path.picture_steps(shape, options.fit)
        if options.fit
        else input_path.default_steps(kind, shape, dtype, columns)
    )
    if is_stream and kind in ("audio", "window") and path_steps:
        path_steps.append(input_path.windows_step(shape[0], model_shape[0] * mel["hop_samples"] if mel else shape[0]))
    return RawSpec(kind, shape, dtype, value_range, options.sample_rate_hz, columns, tuple(path_steps))


def _first_log_mel(options: BundleOptions) -> dict[str, Any] | None:
    """Return the log_mel step if it is the first step and its window and hop are numbers."""
    first = next(iter(options.preprocess), None)
    if first is None or first["step"] != "log_mel":
        return None
    counts = [first[key] for key in ("window_samples", "hop_samples")]
    return first if all(is_integer(each) and each > 0 for each in counts) else None


def model_picture_size(options: BundleOptions) -> tuple[int, ...] | None:
    """Return the height and width of the pictures after preprocessing, if the options determine them."""
    for step in reversed(options.preprocess):
        if step["step"] == "resize":
            sides = step["height"], step["width"]
            return sides if all(isinstance(side, int) and 0 < side <= steps.LARGEST_SIDE for side in sides) else None
    return options.size[:2] if options.size else None


def _raw_image_shape(options: BundleOptions, model_shape: tuple[int, ...]) -> tuple[int, ...]:
    names = [step["step"] for step in options.preprocess]
    if options.size is None and "resize" in names:
        raise ConfigError("--size: is missing, but preprocess resizes; give the size of raw pictures as HEIGHTxWIDTH")
    sides = options.size or model_shape[:2]
    if len(sides) == 3:
        return sides
    other_channels = {1: 3, 3: 1}
    return (*sides, other_channels[model_shape[2]] if "channels" in names else model_shape[2])


def _channels_last_shape(source: TensorSpec) -> tuple[int, ...]:
    """Return the shape of one input sample, with the channels last."""
    shape = source.shape[1:]
    return (*shape[1:], shape[0]) if source.layout == "NCHW" else shape


def check_tensor(role: str, tensor: ModelTensor, is_only: bool = True) -> None:
    """Check the shape and dtype of a tensor. `is_only` says that it is the model's only input or only output.

    Raises
    ------
    ModelError
        No bundle can have such a tensor.
    """
    shape_text = [side if side > 0 else "?" for side in tensor.shape]
    if any(side < 1 for side in tensor.shape):
        size_hint = "give their size with --size HEIGHTxWIDTH, or " if is_only and image_axes(tensor.shape) else ""
        example = "[1,3,224,224]" if is_only else f"{tensor.name}{shape_text}".replace("?", "SIZE").replace(" ", "")
        raise ModelError(
            f"{role} {tensor.name}: its shape {shape_text} is open; {size_hint}export the model with a fixed one "
            f"(ONNX: {ONNX_FIX}; OpenVINO: ovc MODEL --input {example})".replace("'", "")
        )
    if not tensor.shape or tensor.shape[0] != 1:
        raise ModelError(f"{role} {tensor.name}: its shape is {shape_text}; export the model with a batch of 1")
    if tensor.dtype not in SUPPORTED_DTYPES:
        advice = "; if it is the number of a class, export the model without its argmax" if role == "output" else ""
        if tensor.dtype == "float64":
            advice = "; convert the model again for float32: to_onnx(model, X[:1].astype(numpy.float32)) of skl2onnx"
        raise ModelError(
            f"{role} {tensor.name}: {tensor.dtype}; a bundle's models use {', '.join(SUPPORTED_DTYPES)}{advice}"
        )
