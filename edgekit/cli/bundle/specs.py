"""Specs of models with several inputs or outputs, and of the outputs of tasks on pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from edgekit.cli.bundle.model_facts import ModelFacts
from edgekit.cli.bundle.options import BundleOptions
from edgekit.cli.bundle.tensor_specs import ModelTensor, check_tensor, output_spec
from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import task_outputs
from edgekit.runner import boxes, masks
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.input_vector import KIND, LARGEST_EXACT_INTEGER, describe, width

PICTURE_TASKS = ("detection", "segmentation")
"""Tasks whose answers are positions in a picture."""
STRAY_DISTANCE, MAX_STRAY_SHARE = 0.25, 0.5
"""A box is stray if it extends beyond the picture by more than `STRAY_DISTANCE` times the picture's side.

`MAX_STRAY_SHARE` is the largest share of stray boxes that is tolerated.
"""

Say = Callable[[str], None]


def output_specs(options: BundleOptions, facts: ModelFacts, raw: RawSpec) -> tuple[TensorSpec, ...]:
    """Return the specs of the model's outputs in the order that the task expects.

    Raises
    ------
    ConfigError
        The task, the labels or the sample do not fit the outputs.
    """
    if options.task in PICTURE_TASKS:
        return _picture_task_outputs(options, facts, raw)
    if len(facts.outputs) == 1:
        return (output_spec(facts.output, options),)
    for tensor in facts.outputs:
        check_tensor("output", tensor)
    return tuple(
        TensorSpec(name, tensor.shape, tensor.dtype, "ANY") for name, tensor in outputs_by_name(facts.outputs).items()
    )


def outputs_by_name(outputs: tuple[ModelTensor, ...]) -> dict[str, ModelTensor]:
    """Return the outputs by the names in the file's signature, or by tensor names if those are ambiguous."""
    titles = {tensor.title or tensor.name: tensor for tensor in outputs}
    names = {tensor.name: tensor for tensor in outputs}
    is_unambiguous = len(titles) == len(outputs) and all(
        names.get(title, tensor) is tensor for title, tensor in titles.items()
    )
    return titles if is_unambiguous else names


def _picture_task_outputs(options: BundleOptions, facts: ModelFacts, raw: RawSpec) -> tuple[TensorSpec, ...]:
    task = options.task
    if raw.kind != "image":
        raise ConfigError(
            f"--task {task}: takes pictures, but the model's samples are of kind {raw.kind}; use --task raw"
        )
    if not options.labels:
        raise ConfigError(f"--labels: name the classes of --task {task}, in the model's order, or use --task raw")
    for tensor in facts.outputs:
        check_tensor("output", tensor)
    sides, classes = [tensor.shape[1:] for tensor in facts.outputs], len(options.labels)
    try:
        if task == "segmentation":
            [output] = facts.outputs
            layout = task_outputs.mask_layout(sides[0], classes, raw.shape[:2])
            return (TensorSpec(output.name, output.shape, output.dtype, layout),)
        if any(step["step"] == "resize" for step in options.preprocess):
            raise ConfigError(
                "--preprocess: boxes are measured in the pixels that the model sees; leave out resize and "
                f"--size, because pictures of any size are brought to {raw.shape[0]}×{raw.shape[1]} first, as "
                "set by --fit"
            )
        positions = task_outputs.box_outputs(sides, classes, raw.shape[:2], _box_output(options, facts))
    except ModelError as error:
        raise ModelError(f"{options.model}: {error}; or use --task raw") from None
    chosen = [facts.outputs[position] for position in positions]
    return tuple(TensorSpec(tensor.name, tensor.shape, tensor.dtype, "ANY") for tensor in chosen)


def _box_output(options: BundleOptions, facts: ModelFacts) -> int | None:
    """Return the index of the output with the boxes if `--boxes` names it, otherwise None.

    Raises
    ------
    ConfigError
        The model has no output of that name, or no name was given although two outputs could be the boxes.
    """
    names = [*outputs_by_name(facts.outputs)]
    if options.boxes is not None:
        positions = {tensor.name: position for position, tensor in enumerate(facts.outputs)}
        positions |= {name: position for position, name in enumerate(names)}
        if options.boxes not in positions:
            raise ConfigError(f"--boxes {options.boxes}: the model has no such output; it has {', '.join(names)}")
        return positions[options.boxes]
    last_sides = [tensor.shape[-1] for tensor in facts.outputs]
    if len(last_sides) == 2 and last_sides == [boxes.BOX_SIDES, boxes.BOX_SIDES]:
        raise ConfigError(
            f"--boxes: {' and '.join(names)} both give {boxes.BOX_SIDES} numbers for each point; name the output with "
            "the boxes"
        )
    return None


def check_outputs(draft: Manifest, outputs: np.ndarray, say: Say) -> None:
    """Check the recorded outputs (n, …) of a detection or segmentation, and print a summary of them.

    Raises
    ------
    ModelError
        The boxes or scores do not have the form that a bundle needs.
    """
    if draft.task == "segmentation":
        kinds, counts = np.unique(outputs.argmax(axis=1), return_counts=True)
        shares = {draft.labels[kind]: count / counts.sum() for kind, count in zip(kinds, counts, strict=True)}
        cell = masks.cell_size(draft.raw.shape[:2], outputs.shape[2:])
        summary = ", ".join(
            f"{label} {share:.0%}" for label, share in sorted(shares.items(), key=lambda item: -item[1])
        )
        say(f"masks       of {cell}×{cell} pixels a cell; the {len(outputs)} recorded ones: {summary}")
    if draft.task == "detection":
        _check_scores(outputs[..., boxes.BOX_SIDES :])
        _check_boxes(draft, outputs, say)


def _check_scores(scores: np.ndarray) -> None:
    if scores.min() >= 0 and scores.max() <= 1:
        raise ModelError(
            f"the scores of all {len(scores)} recorded outputs lie from 0 to 1, as after a sigmoid; a bundle takes the "
            "sigmoid itself: export the logits before it"
        )


def _check_boxes(draft: Manifest, outputs: np.ndarray, say: Say) -> None:
    """Print how many boxes there are and how large they are.

    Raises
    ------
    ModelError
        Most boxes reach far outside the picture.
    """
    size = draft.raw.shape[:2]
    options = boxes.BoxOptions(**draft.boxes or {})
    decode = boxes.Decoder(size, outputs.shape[1], options)
    boxes_by_sample = [decode(each).sides for each in outputs]
    are_stray = _stray_boxes(outputs, decode, size)
    if len(are_stray) and are_stray.mean() > MAX_STRAY_SHARE:
        raise ModelError(
            f"{are_stray.mean():.0%} of the boxes with a probability of {options.least_probability:g} or more reach "
            "far beyond the picture; a bundle's boxes are distances from each point to the four sides, in strides: see "
            "https://arxiv.org/abs/1904.01355, or use --task raw"
        )
    sides = np.concatenate(boxes_by_sample)
    if not len(sides):
        say(
            f"boxes       none in the {len(outputs)} recorded inputs with a probability of "
            f"{options.least_probability:g} or more; if there should be some, check --preprocess and --threshold"
        )
        return
    wide, high = (np.median(sides[:, end] - sides[:, start]) for start, end in ((0, 2), (1, 3)))
    say(
        f"boxes       {len(sides)} in the {len(outputs)} recorded inputs with a probability of "
        f"{options.least_probability:g} or more, half of them larger than {wide:.0f}×{high:.0f} pixels"
    )


def _stray_boxes(outputs: np.ndarray, decode: boxes.Decoder, size: tuple[int, ...]) -> np.ndarray:
    """Return, for each box with a sufficient logit, whether it extends far beyond the picture."""
    picture, point = np.nonzero((outputs[..., boxes.BOX_SIDES :] >= decode.least_logit).any(axis=2))
    sides = decode.places[point] + outputs[picture, point, : boxes.BOX_SIDES] * decode.reaches[point]
    low, high, limits = sides[:, :2], sides[:, 2:], decode.limits[:2]
    are_stray: np.ndarray = ((low < -STRAY_DISTANCE * limits) | (high > (1 + STRAY_DISTANCE) * limits)).any(axis=1)
    return are_stray


SINGLE_INPUT_OPTIONS = {
    "preprocess": ("--preprocess", "such models scale by themselves; make each tensor as in training"),
    "size": ("--size", "a tensor has the shape that the model takes"),
    "layout": ("--layout", "a tensor has the layout that the model takes"),
    "sample_rate_hz": ("--sample-rate", "sounds need a model with one input"),
    "columns": ("--columns", "tables need a model with one input"),
    "dtype": ("--dtype", "a tensor has the type that the model takes"),
    "range": ("--range", "each has its own: --input-range NAME=LOW,HIGH"),
}
"""Options for models with one input, each with the reason why it does not apply to several inputs."""


def input_specs(options: BundleOptions, facts: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
    """Return the specs of the model's inputs and of the raw sample.

    Raises
    ------
    ConfigError
        An option does not fit several inputs.
    ModelError
        No bundle can have such inputs.
    """
    _check_options(options, facts)
    inputs = tuple(_input_spec(tensor) for tensor in facts.inputs)
    ranges = dict(options.input_ranges)
    tensors = tuple(
        {"name": _title(tensor), "shape": list(tensor.shape[1:]), **_dtype_and_range(tensor, ranges)}
        for tensor in facts.inputs
    )
    shape = (width([tensor["shape"] for tensor in tensors]),)
    return inputs, RawSpec(KIND, shape, "float32", tensors=tensors)


def refuse_multi_input_options(options: BundleOptions) -> None:
    """Refuse options that only a model with several inputs can have. The model has a single input.

    Raises
    ------
    ConfigError
        Such an option was given.
    """
    if options.kind == KIND:
        raise ConfigError(f"--kind {KIND}: the model has one input; leave it out")
    if options.input_ranges:
        raise ConfigError(f"--input-range {options.input_ranges[0][0]}: the model has one input; use --range LOW,HIGH")


def input_lines(options: BundleOptions, facts: ModelFacts, raw: RawSpec) -> Iterator[str]:
    """Yield a line for each tensor, and one for integer tensors whose range is unknown."""
    for source, tensor in zip(facts.inputs, raw.tensors or (), strict=True):
        limits = source.grid.limits if source.grid and source.scale else None
        note = f", which the model takes as {source.dtype} from {limits[0]:.6g} to {limits[1]:.6g}" if limits else ""
        yield f"tensor      {describe(tensor)}{note}"
    given_ranges = dict(options.input_ranges)
    unbounded = [
        tensor["name"]
        for tensor in raw.tensors or ()
        if tensor["dtype"] in ("int32", "int64") and tensor["name"] not in given_ranges
    ]
    if unbounded:
        yield (
            f"range       of {', '.join(unbounded)} is not known: ids outside the model's vocabulary are not refused, "
            "and some interpreters answer them without an error; if you know it, give --input-range "
            f"{unbounded[0]}=LOW,HIGH"
        )


def _check_options(options: BundleOptions, facts: ModelFacts) -> None:
    names = [_title(tensor) for tensor in facts.inputs]
    description = f"the model has {len(names)} inputs ({', '.join(names)})"
    if options.kind not in (None, KIND):
        raise ConfigError(f"--kind {options.kind}: {description}, so a sample is of kind {KIND}; leave it out")
    for attribute, (option, reason) in SINGLE_INPUT_OPTIONS.items():
        if getattr(options, attribute):
            raise ConfigError(f"{option}: {description}; {reason}; leave {option} out")
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise ModelError(
            f"{options.model}: has two inputs named {duplicate}; export it with a name of its own for each"
        )
    for name, _ in options.input_ranges:
        if name not in names:
            raise ConfigError(f"--input-range {name}: the model has no such input; it has {', '.join(names)}")


def _title(tensor: ModelTensor) -> str:
    return tensor.title or tensor.name


def _input_spec(tensor: ModelTensor) -> TensorSpec:
    name = _title(tensor)
    if len(tensor.shape) < 2:
        shape = [side if side > 0 else "?" for side in tensor.shape]
        raise ModelError(
            f"input {name}: takes {shape}; each of several inputs must have a batch of 1 and at least one "
            f"more dimension, such as [1, 1]".replace("'", "")
        )
    check_tensor("input", tensor, is_only=False)
    if not prod(tensor.shape):
        raise ModelError(f"input {name}: takes {list(tensor.shape)}, which is empty; export the model without it")
    return TensorSpec(tensor.name, tensor.shape, tensor.dtype, "NC" if len(tensor.shape) == 2 else "ANY")


def _dtype_and_range(tensor: ModelTensor, ranges: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the dtype and range of a sample's tensor: float32, or the type of the model's plain integers."""
    name = _title(tensor)
    is_float = tensor.dtype.startswith("float") or tensor.scale > 0
    dtype, requested = "float32" if is_float else tensor.dtype, ranges.get(name)
    lowest, highest = _widest_range(dtype)
    low, high = requested or (lowest, highest)
    if low < lowest or high > highest:
        raise ConfigError(
            f"--input-range {name}: got {low:.9g},{high:.9g}; the largest range of {dtype} is "
            f"{lowest:.9g},{highest:.9g}"
        )
    if is_float:
        return {"dtype": dtype, "range": None if requested is None else [low, high]}
    if int(low) != low or int(high) != high:
        raise ConfigError(f"--input-range {name}: got {low:g},{high:g}; the input is {dtype}, so use whole numbers")
    return {"dtype": dtype, "range": [int(low), int(high)]}


def _widest_range(dtype: str) -> tuple[float, float]:
    """Return the widest range of a tensor of the given type."""
    if dtype == "float32":
        largest = float(np.finfo(np.float32).max)
        return -largest, largest
    limits = np.iinfo(dtype)
    return max(int(limits.min), -LARGEST_EXACT_INTEGER), min(int(limits.max), LARGEST_EXACT_INTEGER)
