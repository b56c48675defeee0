"""The types and functions that the modules of all file formats share: opened models, their inputs, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.runner import input_vector
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.preprocess.steps import GEOMETRY
from edgekit.runner.preprocess.transform import to_layout

MAX_LOST_SHARE = 0.2
"""The largest share of the samples' magnitudes that may be lost when they are quantized for an input.

If the input was calibrated on such samples, a few percent are lost. If the samples have another unit, most is lost.
"""

Step = dict[str, Any]


@dataclass(frozen=True)
class QuantizationGrid:
    """The quantization of an int8 or uint8 input: the integer q means scale · (q - zero_point).

    Plain integers have scale 1.
    """

    dtype: str
    scale: float = 1.0
    zero_point: int = 0

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest value that the input can represent."""
        integers = np.iinfo(self.dtype)
        return self.scale * (int(integers.min) - self.zero_point), self.scale * (int(integers.max) - self.zero_point)

    def lost_share(self, x: np.ndarray) -> float:
        """Return the sum of the quantization errors of `x`, divided by the sum of its magnitudes; it may exceed 1."""
        values = x.astype(np.float64)
        quantized = np.clip(np.rint(values / self.scale) * self.scale, *self.limits)
        total = float(np.abs(values).sum())
        return float(np.abs(values - quantized).sum()) / total if total else 0.0

    def step_for_raw(self, raw_dtype: str) -> Step | None:
        """Return the preprocess step that cancels the input's quantization, or None if no step is needed.

        With this step, the input receives the raw integers.

        If the raw integers are signed and the input is not, or the other way round, the integers are shifted by 128.
        """
        offset = {("uint8", "int8"): -128, ("int8", "uint8"): 128}.get((raw_dtype, self.dtype), 0)
        zero = self.zero_point - offset
        if zero:
            return {"step": "normalize", "mean": [float(zero)], "std": [_short(1 / self.scale)]}
        return None if self.scale == 1 else {"step": "scale", "factor": _short(self.scale)}


def range_fault(
    grid: QuantizationGrid, x: np.ndarray, raw_dtype: str, steps: Sequence[Step], origin: str = "the preprocess makes"
) -> str:
    """Describe why a quantized input cannot represent `x`, which `steps` made from raw samples; empty if it can.

    `origin` is a phrase for the message that says where `x` comes from.
    """
    lost = grid.lost_share(x)
    if lost <= MAX_LOST_SHARE:
        return ""
    return (
        f"{_describe(grid)}, and {origin} {x.min():.6g} to {x.max():.6g}, of which "
        f"{100 * min(lost, 1):.0f} % would be lost; {_advice(grid, raw_dtype, steps)}"
    )


def range_ambiguity(grid: QuantizationGrid, raw_dtype: str, steps: Sequence[Step]) -> str:
    """Describe the ambiguity if raw bytes are passed unchanged to an input of bytes that has a scale; otherwise empty.

    On a device, the bytes would reach the input unchanged. On the workstation, where samples are float32, they would be
    quantized with the input's scale.
    """
    step = grid.step_for_raw(raw_dtype)
    if raw_dtype != grid.dtype or step is None or any(each["step"] not in GEOMETRY for each in steps):
        return ""
    return f"{_describe(grid)}, and the preprocess leaves bytes unchanged; {_advice(grid, raw_dtype, steps)}"


def _describe(grid: QuantizationGrid) -> str:
    low, high = grid.limits
    return f"takes {grid.dtype} in steps of {grid.scale:.6g}, from {low:.6g} to {high:.6g}"


def _advice(grid: QuantizationGrid, raw_dtype: str, steps: Sequence[Step]) -> str:
    if raw_dtype not in ("uint8", "int8"):
        return "scale the samples as they were when the model was quantized"
    step = grid.step_for_raw(raw_dtype)
    has_scaling = any(each["step"] not in GEOMETRY for each in steps)
    if step is None:
        return "leave out the steps that scale"
    step_text = ", ".join(f"{key}: {value}" for key, value in step.items())
    change = (
        f"{'replace the steps that scale by' if has_scaling else 'add this step to its preprocess:'} {{{step_text}}}"
    )
    return f"to give it the numbers of the raw samples unchanged, {change}"


def _short(value: float) -> float:
    """Return the number with the fewest digits that is equal in float32."""
    return float(str(np.float32(value)))


Run = Callable[[np.ndarray], np.ndarray]
Tensors = Sequence[Mapping[str, Any]]
"""The tensors of a sample, as a manifest's `raw` lists them; empty if a sample is one array."""


@dataclass(frozen=True)
class OpenedModel:
    """A model file that has been opened to be run.

    Several inputs are joined in one vector (`edgekit.runner.input_vector`), and several outputs in one array.

    Attributes
    ----------
    shape
        Shape of the input, the batch first; an open dimension is -1.
    for_shape
        Returns a function from float32 inputs of exactly that shape to outputs, the batch first. It raises whatever
        the format's library raises if the model does not accept the shape.
    step
        The difference between two adjacent values of a quantized output; 0 for floats.
    grid
        Quantization of the input, if it has a scale.
    grids
        Quantizations of several inputs, in the order of the samples' tensors.
    """

    shape: tuple[int, ...]
    for_shape: Callable[[tuple[int, ...]], Run]
    step: float = 0.0
    grid: QuantizationGrid | None = None
    grids: tuple[QuantizationGrid | None, ...] = ()


class DeviceModel(NamedTuple):
    """A model as the runner opens it: its files by name, its inputs in the file's order, its outputs in the task's."""

    files: dict[str, bytes]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class FileInput(NamedTuple):
    """One of the inputs of a file; its shape has the batch first, and an open dimension is -1."""

    name: str
    shape: Sequence[int]
    dtype: str


def check_inputs_and_outputs(inputs: Sequence[str], outputs: int, tensors: Tensors = (), max_outputs: int = 1) -> None:
    """Check the inputs, by their names, and the number of outputs of a model file.

    Raises
    ------
    ModelError
        There are more than `max_outputs` outputs or none, or the inputs are not those of the samples.
    """
    if not 1 <= outputs <= max_outputs:
        count = f"has {outputs} outputs; a model file"
        raise ModelError(
            f"{count} must have one; export it with only its scores"
            if max_outputs == 1
            else f"{count} of a detection must have two; export it with only boxes and logits"
        )
    if not tensors and len(inputs) != 1:
        raise ModelError(
            f"has {len(inputs)} inputs ({', '.join(inputs)}), but each sample is one array; give one array for each "
            "input, named after it: x_train.NAME"
        )
    names = [each["name"] for each in tensors]
    if tensors and sorted(inputs) != sorted(names):
        raise ModelError(
            f"takes {', '.join(inputs)}, but the samples have the tensors {', '.join(names)}; give both the same names"
        )


def joined_input_shape(inputs: Sequence[FileInput], tensors: Tensors) -> tuple[int, ...]:
    """Return the shape of the input, or of the vector that joins several inputs.

    Raises ModelError if an input has another shape than its tensor.
    """
    if not tensors:
        return tuple(inputs[0].shape)
    shapes = {each["name"]: tuple(each["shape"]) for each in tensors}
    for each in inputs:
        sides = tuple(each.shape[1:])
        if len(sides) != len(shapes[each.name]) or any(a not in (-1, b) for a, b in zip(sides, shapes[each.name])):
            raise ModelError(
                f"takes {each.name} as {list(each.shape)}, but the samples have {list(shapes[each.name])} "
                f"each; give them in that shape, the batch first"
            )
    return max(each.shape[0] for each in inputs), input_vector.width(list(shapes.values()))


def input_arrays(x: np.ndarray, inputs: Sequence[FileInput], tensors: Tensors) -> dict[str, np.ndarray]:
    """Split samples (n, …) into the arrays of the inputs, by name; ModelError if an integer cannot hold a value."""
    if not tensors:
        return {inputs[0].name: cast_input(x, inputs[0].dtype)}
    names = [each["name"] for each in tensors]
    parts = dict(zip(names, input_vector.split(x, [each["shape"] for each in tensors]), strict=True))
    return {each.name: cast_input(parts[each.name], each.dtype) for each in inputs}


def cast_input(x: np.ndarray, dtype: str) -> np.ndarray:
    """Cast float32 `x` to the dtype of an input without a scale; raise ModelError if an integer cannot hold a value."""
    target = np.dtype(dtype)
    if target.kind not in "fiu":
        raise ModelError(f"its input is {dtype}; a model file may take floats or integers")
    with np.errstate(invalid="ignore"):  # values that do not fit are detected below
        converted = x.astype(target, copy=False)
    if target.kind != "f" and not np.array_equal(converted, x):
        example = float(x[converted != x][0])
        raise ModelError(
            f"its input is {dtype}, but its preprocess makes values such as {example:g}; leave out the steps that scale"
        )
    return converted


@dataclass(frozen=True)
class Layout:
    """The layout of an input: the `order` of its axes as the runner names it, and the shape of one sample, `sides`."""

    order: str
    sides: tuple[int, ...]

    def arrange(self, x: np.ndarray) -> np.ndarray:
        """Arrange a batch of images (n, height, width, channels), vectors or windows for the model, contiguous."""
        return to_layout(x, self.order).reshape(len(x), *self.sides)


def channels_last(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (H, W, C) for a network's (C, H, W); other shapes, including windows, are returned unchanged."""
    return (*input_shape[1:], input_shape[0]) if len(input_shape) == 3 else input_shape


def find_layout(shape: Sequence[int], sample: Sequence[int]) -> Layout:
    """Find the layout in which samples fit an input.

    Grey images also fit an input without an axis for channels, even if it is flat, because the order of the values is
    the same.

    Parameters
    ----------
    shape
        Shape of the input, the batch first; an open dimension is -1.
    sample
        Shape of one sample, channels last.

    Raises
    ------
    ModelError
        The samples do not fit, or fit in more than one layout.
    """
    fitting = [layout for layout in _layouts(tuple(sample)) if _fits(shape[1:], layout.sides)]
    shape_text = f"[{', '.join('?' if side < 0 else str(side) for side in shape)}]"
    if not fitting and len(sample) == 2 and _fits(shape[1:], sample[::-1]):
        raise ModelError(
            f"takes {shape_text}, channels before time, but the samples are windows {list(sample)}, time "
            f"before channels; export it with the transpose as its first step, so that it takes (time, "
            f"channels)"
        )
    if not fitting:
        raise ModelError(
            f"takes {shape_text}, but the samples are {list(sample)} after its preprocess; "
            "add a resize or channels step to its preprocess, or export it for these samples, the batch first"
        )
    if len(fitting) > 1:
        raise ModelError(
            f"takes {shape_text}, which samples {list(sample)} fit both with channels first and with channels last; "
            "export it with a fixed height, width and number of channels"
        )
    return fitting[0]


def _layouts(sample: tuple[int, ...]) -> list[Layout]:
    if len(sample) < 3:
        return [Layout("NC" if len(sample) == 1 else "ANY", sample)]
    height, width, channels = sample
    layouts = [Layout("NHWC", sample), Layout("NCHW", (channels, height, width))]
    if channels == 1:
        layouts += [Layout("NHWC", (height, width)), Layout("NHWC", (height * width,))]
    return layouts


def _fits(expected: Sequence[int], sides: Sequence[int]) -> bool:
    return len(expected) == len(sides) and all(own in (-1, side) for own, side in zip(expected, sides, strict=True))
