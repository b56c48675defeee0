"""A model of several inputs: a sample of as many tensors by name, which the model takes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from edgekit.cli.bundle.examine import ModelFacts
from edgekit.cli.bundle.infer import Tensor, check_tensor
from edgekit.cli.bundle.options import Options
from edgekit.core.errors import ConfigError, ModelError
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.input_vector import KIND, LARGEST, describe, width

FOR_ONE = {
    "preprocess": ("--preprocess", "such models scale by themselves; make each tensor as in training"),
    "size": ("--size", "a tensor has the shape that the model takes"),
    "layout": ("--layout", "a tensor is as the model takes it"),
    "sample_rate_hz": ("--sample-rate", "sounds are for models of one input"),
    "columns": ("--columns", "tables are for models of one input"),
    "dtype": ("--dtype", "a tensor has the type that the model takes"),
    "range": ("--range", "each has its own: --input-range NAME=LOW,HIGH"),
}
"""Options of models with one input, and why they say nothing here."""


def specs(options: Options, found: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
    """The model's inputs and the raw sample; ConfigError for options that do not fit, ModelError for the model."""
    _check_options(options, found)
    inputs = tuple(_input(each) for each in found.inputs)
    ranges = dict(options.input_ranges)
    tensors = tuple(
        {"name": _title(each), "shape": list(each.shape[1:]), **_values(each, ranges)} for each in found.inputs
    )
    shape = (width([each["shape"] for each in tensors]),)
    return inputs, RawSpec(KIND, shape, "float32", tensors=tensors)


def check_one(options: Options) -> None:
    """ConfigError for options of several inputs where the model has one."""
    if options.kind == KIND:
        raise ConfigError(f"--kind {KIND}: the model has one input; leave it out")
    if options.input_ranges:
        raise ConfigError(f"--input-range {options.input_ranges[0][0]}: the model has one input; use --range LOW,HIGH")


def lines(options: Options, found: ModelFacts, raw: RawSpec) -> Iterator[str]:
    """What is said of the tensors: each by itself, and those of integers whose range is not known."""
    for source, tensor in zip(found.inputs, raw.tensors or (), strict=True):
        ends = source.grid.limits if source.grid and source.scale else None
        how = f", which the model takes as {source.dtype} from {ends[0]:.6g} to {ends[1]:.6g}" if ends else ""
        yield f"tensor      {describe(tensor)}{how}"
    given = dict(options.input_ranges)
    free = [
        tensor["name"]
        for tensor in raw.tensors or ()
        if tensor["dtype"] in ("int32", "int64") and tensor["name"] not in given
    ]
    if free:
        yield (
            f"range       of {', '.join(free)} is not known: ids outside the model's vocabulary are not refused, and "
            f"some interpreters answer them without an error; where you know it, give --input-range {free[0]}=LOW,HIGH"
        )


def _check_options(options: Options, found: ModelFacts) -> None:
    names = [_title(each) for each in found.inputs]
    has = f"the model has {len(names)} inputs ({', '.join(names)})"
    if options.kind not in (None, KIND):
        raise ConfigError(f"--kind {options.kind}: {has}, so a sample is of kind {KIND}; leave it out")
    for attribute, (option, why) in FOR_ONE.items():
        if getattr(options, attribute):
            raise ConfigError(f"{option}: {has}; {why}; leave {option} out")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ModelError(f"{options.model}: has two inputs of the name {twice}; export it with names of their own")
    for name, _ in options.input_ranges:
        if name not in names:
            raise ConfigError(f"--input-range {name}: the model has no such input; it has {', '.join(names)}")


def _title(tensor: Tensor) -> str:
    return tensor.title or tensor.name


def _input(tensor: Tensor) -> TensorSpec:
    name = _title(tensor)
    if len(tensor.shape) < 2:
        shown = [side if side > 0 else "?" for side in tensor.shape]
        raise ModelError(
            f"input {name}: takes {shown}; of several inputs each has a batch of 1 and at least one more side, "
            "such as [1, 1]".replace("'", "")
        )
    check_tensor("input", tensor, is_only=False)
    if not prod(tensor.shape):
        raise ModelError(f"input {name}: takes {list(tensor.shape)}, which is empty; export the model without it")
    return TensorSpec(tensor.name, tensor.shape, tensor.dtype, "NC" if len(tensor.shape) == 2 else "ANY")


def _values(tensor: Tensor, ranges: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Type and range of the sample's tensor: floats, or the plain integers that the model takes."""
    name = _title(tensor)
    is_float = tensor.dtype.startswith("float") or tensor.scale > 0
    dtype, asked = "float32" if is_float else tensor.dtype, ranges.get(name)
    lowest, highest = _ends(dtype)
    low, high = asked or (lowest, highest)
    if low < lowest or high > highest:
        raise ConfigError(
            f"--input-range {name}: got {low:.9g},{high:.9g}; of {dtype} it may be {lowest:.9g},{highest:.9g} at most"
        )
    if is_float:
        return {"dtype": dtype, "range": None if asked is None else [low, high]}
    if int(low) != low or int(high) != high:
        raise ConfigError(f"--input-range {name}: got {low:g},{high:g}; the input is {dtype}: whole numbers")
    return {"dtype": dtype, "range": [int(low), int(high)]}


def _ends(dtype: str) -> tuple[float, float]:
    """The widest range of a tensor of this type."""
    if dtype == "float32":
        largest = float(np.finfo(np.float32).max)
        return -largest, largest
    ends = np.iinfo(dtype)
    return max(int(ends.min), -LARGEST), min(int(ends.max), LARGEST)
