"""Infer the specs of a bundle from the model's own tensors and the user's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.cli.bundle.options import Options
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
TAKEN = tuple(dtype for dtype in TENSOR_DTYPES if dtype != "int16")
"""Of a ready-made file: nobody has looked at what int16 inputs of other tools hold."""
ONNX_FIX = "python -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param NAME --dim_value SIZE MODEL FIXED"


@dataclass(frozen=True)
class Tensor:
    """A model's input or output: an open side of its shape is -1; integers have a scale, floats and plain ones 0.

    `title` is what a sample's file calls it, where that is not its name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
    title: str = ""

    @property
    def grid(self) -> QuantizationGrid | None:
        """What integers of 8 bits can hold; None for anything else."""
        return QuantizationGrid(self.dtype, self.scale or 1.0, self.zero_point) if self.dtype in INTEGERS else None


def input_spec(tensor: Tensor, layout: str | None) -> TensorSpec:
    """The model's input: one image, channels last or first, [1, features] or [1, time, channels]."""
    check_tensor("input", tensor)
    shape = tensor.shape
    if tensor.dtype in TOKEN_ID_DTYPES:
        raise ModelError(
            f"input {tensor.name}: takes {tensor.dtype}{list(shape)}; as the only input a bundle takes floats or "
            "integers of 8 bits, and token ids where `edgekit run` learns from texts; export the model with a Cast "
            "from float32 in front, and say which ids there are with --range LOW,HIGH"
        )
    if len(shape) in (2, 3):
        if layout:
            raise ConfigError(f"--layout {layout}: the model takes {list(shape)}, which is not an image; leave it out")
        return TensorSpec(tensor.name, shape, tensor.dtype, "NC" if len(shape) == 2 else "ANY")
    if len(shape) != 4:
        raise ModelError(
            f"input {tensor.name}: takes {list(shape)}; a bundle holds [1, features], [1, time, channels] or a batch "
            "of 1 image"
        )
    fitting = [name for name, place in (("NHWC", 3), ("NCHW", 1)) if shape[place] in CHANNELS]
    if not fitting:
        raise ModelError(f"input {tensor.name}: takes {list(shape)}; images have 1 or 3 channels, first or last")
    if layout is None and len(fitting) == 2:
        raise ConfigError(f"input {tensor.name}: takes {list(shape)}: say which it is with --layout NHWC or NCHW")
    if layout is not None and layout not in fitting:
        raise ConfigError(f"--layout {layout}: the model takes {list(shape)}, which is {fitting[0]}; leave it out")
    return TensorSpec(tensor.name, shape, tensor.dtype, layout or fitting[0])


def output_spec(tensor: Tensor, options: Options) -> TensorSpec:
    """The model's output; ConfigError where task and labels do not fit it."""
    check_tensor("output", tensor)
    shape = tensor.shape
    if options.task == "raw" or (options.task == "embedding" and len(shape) == 2):
        return TensorSpec(tensor.name, shape, tensor.dtype, "NC" if len(shape) == 2 else "ANY")
    if len(shape) != 2:
        raise ConfigError(
            f"--task {options.task}: needs [1, values], and the model gives {list(shape)}; use --task raw"
        )
    if options.task == "classification" and shape[1] < 2:
        raise ConfigError(
            "--task classification: the model gives one value, not a score for each class; where that is the "
            "probability of one of two, use --task regression with its name in --labels, or let the model end in both: "
            f"{TWO_SCORES}"
        )
    if not options.labels:
        raise ConfigError(f"--labels: name the {shape[1]} values that the model gives, or use --task raw")
    if len(options.labels) != shape[1]:
        raise ConfigError(
            f"--labels: {len(options.labels)} labels ({options.labels[0]} … {options.labels[-1]}), "
            f"the model gives {shape[1]} values; name each once, in the model's order"
        )
    return TensorSpec(tensor.name, shape, tensor.dtype, "NC")


def raw_spec(options: Options, source: TensorSpec, seen: str | None = None, is_stream: bool = False) -> RawSpec:
    """The raw sample; ConfigError unless the preprocess steps turn it into the model's input.

    `seen` is the dtype of the first array among the inputs, which decides where the model takes the same integers.
    `is_stream`: the model has states, so a recording is taken window by window, no moment or spectrum of it twice.
    """
    wanted, mel = _hwc(source), _log_mel(options)
    clear = "audio" if mel else {3: "image", 2: "window"}.get(len(wanted))
    kind = options.kind or clear or ("audio" if options.sample_rate_hz else "vector")
    if len(wanted) != (3 if mel and kind == "audio" else KINDS[kind]):
        raise ConfigError(f"--kind {kind}: the model takes {list(source.shape)}, which does not fit that kind")
    if kind == "audio" and options.sample_rate_hz is None:
        raise ConfigError("--sample-rate: is missing; audio needs it, in samples a second")
    if kind != "audio" and options.sample_rate_hz is not None:
        raise ConfigError(f"--sample-rate: applies only to audio, and the samples are of kind {kind}; leave it out")
    if kind == "image":
        shape = _raw_image(options, wanted)
    elif options.size is not None:
        raise ConfigError(f"--size: applies only to images, and the samples are of kind {kind}; leave it out")
    elif mel:
        shape = (mel["window_samples"] + (wanted[0] - 1) * mel["hop_samples"],)
    else:
        shape = wanted
    floats = kind != "image" or options.range is not None
    own = kind != "audio" and not options.range and source.dtype in INTEGERS
    usual = "float32" if floats else "uint8"
    dtype = options.dtype or (source.dtype if own and seen == source.dtype else usual)
    if dtype != "float32" and (options.range or kind == "audio" or (kind == "window" and dtype != source.dtype)):
        also = f", and the model's are {source.dtype}" if kind == "window" else ""
        raise ConfigError(f"--dtype {dtype}: audio, windows and samples with a --range are float32{also}; leave it out")
    try:
        made = steps.check(options.preprocess, shape, dtype)
    except InputError as error:
        raise ConfigError(f"--{error}") from None
    if made != wanted:
        raise ConfigError(
            f"--preprocess: makes {list(made)} of raw samples {list(shape)}, the model takes {list(wanted)}; "
            "add a resize or channels step, or say what comes in with --size"
        )
    if options.columns and (kind not in ("vector", "window") or dtype != "float32"):
        raise ConfigError(f"--columns: a table holds float32 vectors and windows, this is {kind} {dtype}; leave it out")
    if options.columns and len(options.columns) != shape[-1]:
        raise ConfigError(f"--columns: {len(options.columns)} are named, the model takes {shape[-1]}; name each once")
    if options.fit and (kind != "image" or dtype != "uint8"):
        raise ConfigError(f"--fit {options.fit}: pictures in files are uint8, this is {kind} {dtype}; leave it out")
    limits = (-1.0, 1.0) if kind == "audio" and options.range is None else options.range
    columns = options.columns or None
    path = (
        input_path.picture_steps(shape, options.fit)
        if options.fit
        else input_path.default_steps(kind, shape, dtype, columns)
    )
    if is_stream and kind in ("audio", "window") and path:
        path.append(input_path.windows_step(shape[0], wanted[0] * mel["hop_samples"] if mel else shape[0]))
    return RawSpec(kind, shape, dtype, limits, options.sample_rate_hz, columns, tuple(path))


def _log_mel(options: Options) -> dict[str, Any] | None:
    """The step that makes a spectrogram of a sound, where it comes first and its window and hop are numbers."""
    first = next(iter(options.preprocess), None)
    if first is None or first["step"] != "log_mel":
        return None
    counts = [first[key] for key in ("window_samples", "hop_samples")]
    return first if all(is_integer(each) and each > 0 for each in counts) else None


def size_inside(options: Options) -> tuple[int, ...] | None:
    """Height and width of the pictures that reach the model, where options say so."""
    for step in reversed(options.preprocess):
        if step["step"] == "resize":
            sides = step["height"], step["width"]
            return sides if all(isinstance(side, int) and 0 < side <= steps.LARGEST_SIDE for side in sides) else None
    return options.size[:2] if options.size else None


def _raw_image(options: Options, wanted: tuple[int, ...]) -> tuple[int, ...]:
    names = [step["step"] for step in options.preprocess]
    if options.size is None and "resize" in names:
        raise ConfigError("--size: preprocess resizes; say what size raw pictures have, as HEIGHTxWIDTH")
    sides = options.size or wanted[:2]
    if len(sides) == 3:
        return sides
    other = {1: 3, 3: 1}
    return (*sides, other[wanted[2]] if "channels" in names else wanted[2])


def _hwc(source: TensorSpec) -> tuple[int, ...]:
    """One sample of the input, channels last."""
    sides = source.shape[1:]
    return (*sides[1:], sides[0]) if source.layout == "NCHW" else sides


def check_tensor(what: str, tensor: Tensor, is_only: bool = True) -> None:
    """ModelError unless it is of a shape and a type that a bundle's model has; `is_only`: of its kind."""
    shown = [side if side > 0 else "?" for side in tensor.shape]
    if any(side < 1 for side in tensor.shape):
        say_so = "say their size with --size HEIGHTxWIDTH, or " if is_only and image_axes(tensor.shape) else ""
        sizes = "[1,3,224,224]" if is_only else f"{tensor.name}{shown}".replace("?", "SIZE").replace(" ", "")
        raise ModelError(
            f"{what} {tensor.name}: its shape {shown} is open; {say_so}export the model with a fixed one "
            f"(ONNX: {ONNX_FIX}; OpenVINO: ovc MODEL --input {sizes})".replace("'", "")
        )
    if not tensor.shape or tensor.shape[0] != 1:
        raise ModelError(f"{what} {tensor.name}: its shape is {shown}; export the model with a batch of 1")
    if tensor.dtype not in TAKEN:
        cut = "; where it is the number of a class, export the model without its argmax" if what == "output" else ""
        if tensor.dtype == "float64":
            cut = "; convert the model again for float32: to_onnx(model, X[:1].astype(numpy.float32)) of skl2onnx"
        raise ModelError(f"{what} {tensor.name}: {tensor.dtype}; a bundle's models use {', '.join(TAKEN)}{cut}")
