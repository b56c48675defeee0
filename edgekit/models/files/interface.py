"""What every kind of file gives, and what the kinds share."""

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
"""Share of the samples' sum of magnitudes. Ranges that were calibrated lose some percent, another unit most of it."""

Step = dict[str, Any]


@dataclass(frozen=True)
class QuantizationGrid:
    """An input of int8 or uint8: the integer q stands for scale · (q - zero_point); plain integers have scale 1."""

    dtype: str
    scale: float = 1.0
    zero_point: int = 0

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number that it holds."""
        ends = np.iinfo(self.dtype)
        return self.scale * (int(ends.min) - self.zero_point), self.scale * (int(ends.max) - self.zero_point)

    def lost(self, x: np.ndarray) -> float:
        """Share of the magnitudes of `x` that is not in what the input makes of them, 0 to 1 and more."""
        wanted = x.astype(np.float64)
        held = np.clip(np.rint(wanted / self.scale) * self.scale, *self.limits)
        whole = float(np.abs(wanted).sum())
        return float(np.abs(wanted - held).sum()) / whole if whole else 0.0

    def through(self, raw_dtype: str) -> Step | None:
        """The step that hands it a raw sample's integers as they are, or moved by 128 between signed and unsigned.

        None where no step is needed.
        """
        moved = {("uint8", "int8"): -128, ("int8", "uint8"): 128}.get((raw_dtype, self.dtype), 0)
        zero = self.zero_point - moved
        if zero:
            return {"step": "normalize", "mean": [float(zero)], "std": [_short(1 / self.scale)]}
        return None if self.scale == 1 else {"step": "scale", "factor": _short(self.scale)}


def range_fault(
    grid: QuantizationGrid, x: np.ndarray, raw_dtype: str, steps: Sequence[Step], origin: str = "the preprocess makes"
) -> str:
    """What is wrong where the input cannot hold `x`, which `steps` made of raw samples; empty where it can.

    `origin` says in words where `x` comes from.
    """
    lost = grid.lost(x)
    if lost <= MAX_LOST_SHARE:
        return ""
    return (
        f"{_describe(grid)}, and {origin} {x.min():.6g} to {x.max():.6g}, of which "
        f"{100 * min(lost, 1):.0f} % would be lost; {_advice(grid, raw_dtype, steps)}"
    )


def range_ambiguity(grid: QuantizationGrid, raw_dtype: str, steps: Sequence[Step]) -> str:
    """What is to be said where bytes meet an input of bytes whose scale makes other bytes of them; empty elsewhere.

    On the device they would reach it as they are, and elsewhere by its scale.
    """
    step = grid.through(raw_dtype)
    if raw_dtype != grid.dtype or step is None or any(each["step"] not in GEOMETRY for each in steps):
        return ""
    return f"{_describe(grid)}, and the preprocess leaves bytes unchanged; {_advice(grid, raw_dtype, steps)}"


def _describe(grid: QuantizationGrid) -> str:
    low, high = grid.limits
    return f"takes {grid.dtype} in steps of {grid.scale:.6g}, from {low:.6g} to {high:.6g}"


def _advice(grid: QuantizationGrid, raw_dtype: str, steps: Sequence[Step]) -> str:
    if raw_dtype not in ("uint8", "int8"):
        return "scale the samples as they were when the model was quantized"
    step = grid.through(raw_dtype)
    already = any(each["step"] not in GEOMETRY for each in steps)
    if step is None:
        return "leave out the steps that scale"
    written = ", ".join(f"{key}: {value}" for key, value in step.items())
    said = f"{'in place of the steps that scale' if already else 'add to its preprocess'}: {{{written}}}"
    return f"give it the numbers of the raw samples unchanged, {said}"


def _short(value: float) -> float:
    """The number with the fewest digits that is the same in float32."""
    return float(str(np.float32(value)))


Run = Callable[[np.ndarray], np.ndarray]
Tensors = Sequence[Mapping[str, Any]]
"""Those of samples of several, as a manifest's `raw` lists them; none where a sample is one array."""


@dataclass(frozen=True)
class OpenedModel:
    """A model with one answer, and one input or several that are joined in a vector (`runner/input_vector.py`).

    shape: of its input, the batch first; an open side is -1
    sized: gives the function from float32 inputs of exactly one shape to outputs, batch first; it raises whatever its
        library raises where the model cannot take that shape
    step: between two neighbouring values of a quantized output; 0 for floats
    grid: what its input can hold, where that has a scale
    grids: the same of several inputs, in the samples' order
    """

    shape: tuple[int, ...]
    sized: Callable[[tuple[int, ...]], Run]
    step: float = 0.0
    grid: QuantizationGrid | None = None
    grids: tuple[QuantizationGrid | None, ...] = ()


class DeviceModel(NamedTuple):
    """A file as the runner opens it: its bytes by name, its inputs in its own order, its outputs in the task's."""

    files: dict[str, bytes]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class FileInput(NamedTuple):
    """One of several inputs of a file: its shape has the batch first, an open side is -1."""

    name: str
    shape: Sequence[int]
    dtype: str


def check_inputs_and_outputs(inputs: Sequence[str], outputs: int, tensors: Tensors = (), most: int = 1) -> None:
    """ModelError unless there are at most so many outputs, and one input or, by these names, those of the samples."""
    if not 1 <= outputs <= most:
        has = f"has {outputs} outputs; a model file"
        raise ModelError(
            f"{has} has one: export it with its scores alone"
            if most == 1
            else f"{has} of a detection has two: export it with boxes and logits alone"
        )
    if not tensors and len(inputs) != 1:
        raise ModelError(
            f"has {len(inputs)} inputs ({', '.join(inputs)}), and the samples are one array each; give the data's "
            "arrays by these names: x_train.NAME"
        )
    wanted = [each["name"] for each in tensors]
    if tensors and sorted(inputs) != sorted(wanted):
        raise ModelError(
            f"takes {', '.join(inputs)}, and the samples have the tensors {', '.join(wanted)}; give both the same names"
        )


def joined_input_shape(inputs: Sequence[FileInput], tensors: Tensors) -> tuple[int, ...]:
    """Of the one input, or of the vector that several are; ModelError where one is of another shape than its tensor."""
    if not tensors:
        return tuple(inputs[0].shape)
    shapes = {each["name"]: tuple(each["shape"]) for each in tensors}
    for each in inputs:
        own = tuple(each.shape[1:])
        if len(own) != len(shapes[each.name]) or any(a not in (-1, b) for a, b in zip(own, shapes[each.name])):
            raise ModelError(
                f"takes {each.name} as {list(each.shape)}, and the samples have {list(shapes[each.name])} each; give "
                "them as it takes them, the batch first"
            )
    return max(each.shape[0] for each in inputs), input_vector.width(list(shapes.values()))


def input_arrays(x: np.ndarray, inputs: Sequence[FileInput], tensors: Tensors) -> dict[str, np.ndarray]:
    """What each input takes of samples (n, …), by name, in their order; ModelError where an integer cannot hold it."""
    if not tensors:
        return {inputs[0].name: cast_input(x, inputs[0].dtype)}
    names = [each["name"] for each in tensors]
    parts = dict(zip(names, input_vector.split(x, [each["shape"] for each in tensors]), strict=True))
    return {each.name: cast_input(parts[each.name], each.dtype) for each in inputs}


def cast_input(x: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 `x` as an input without a scale wants it; ModelError where an integer cannot hold a value."""
    wanted = np.dtype(dtype)
    if wanted.kind not in "fiu":
        raise ModelError(f"its input is {dtype}; a model file may take floats or integers")
    with np.errstate(invalid="ignore"):  # what does not fit is found below
        found = x.astype(wanted, copy=False)
    if wanted.kind != "f" and not np.array_equal(found, x):
        odd = float(x[found != x][0])
        raise ModelError(
            f"its input is {dtype}, and its preprocess makes values such as {odd:g}; leave out the steps that scale"
        )
    return found


@dataclass(frozen=True)
class Layout:
    """`order` is that of the axes, as the runner names it; `sides` are those of one sample in the model."""

    order: str
    sides: tuple[int, ...]

    def arrange(self, x: np.ndarray) -> np.ndarray:
        """A batch of images (n, height, width, channels), of vectors or windows, contiguous as the model takes it."""
        return to_layout(x, self.order).reshape(len(x), *self.sides)


def channels_last(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a network's (C, H, W) the sample's (H, W, C); anything else, windows (time, channels) too, as it is."""
    return (*input_shape[1:], input_shape[0]) if len(input_shape) == 3 else input_shape


def find_layout(shape: Sequence[int], sample: Sequence[int]) -> Layout:
    """The layout of an input of `shape` (batch first, -1: open) for samples of another; ModelError unless there is one.

    Grey pictures also fit an input without channels, flat or not: their values stand in the same order.
    """
    fitting = [layout for layout in _layouts(tuple(sample)) if _fits(shape[1:], layout.sides)]
    shown = f"[{', '.join('?' if side < 0 else str(side) for side in shape)}]"
    if not fitting and len(sample) == 2 and _fits(shape[1:], sample[::-1]):
        raise ModelError(
            f"takes {shown}, channels before time, the samples are windows {list(sample)}, time before channels; "
            "export it with the transpose inside, its first step, so that it takes (time, channels)"
        )
    if not fitting:
        raise ModelError(
            f"takes {shown}, the samples are {list(sample)} after its preprocess; "
            "add a resize or channels step to its preprocess, or export it for these samples, the batch first"
        )
    if len(fitting) > 1:
        raise ModelError(
            f"takes {shown}, in which samples {list(sample)} fit with their channels first and last; "
            "export it with a fixed height, width and number of channels"
        )
    return fitting[0]


def _layouts(sample: tuple[int, ...]) -> list[Layout]:
    if len(sample) < 3:
        return [Layout("NC" if len(sample) == 1 else "ANY", sample)]
    height, width, channels = sample
    found = [Layout("NHWC", sample), Layout("NCHW", (channels, height, width))]
    if channels == 1:
        found += [Layout("NHWC", (height, width)), Layout("NHWC", (height * width,))]
    return found


def _fits(wanted: Sequence[int], sides: Sequence[int]) -> bool:
    return len(wanted) == len(sides) and all(want in (-1, side) for want, side in zip(wanted, sides, strict=True))
