"""The specs of a model's inputs and outputs: those of its task, or all tensors by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from edgekit.cli.bundle.examine import ModelFacts
from edgekit.cli.bundle.infer import Tensor, check_tensor, output_spec
from edgekit.cli.bundle.options import Options
from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import task_outputs
from edgekit.runner import boxes, masks
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.input_vector import KIND, LARGEST_EXACT_INTEGER, describe, width

PICTURES = ("detection", "segmentation")
"""Tasks whose answers lie in the pixels of a picture."""
STRAY, MOST_STRAY = 0.25, 0.5
"""How far beyond the picture a box strays, as a share of its sides, and the share of such boxes that is no chance."""

Say = Callable[[str], None]


def output_specs(options: Options, found: ModelFacts, raw: RawSpec) -> tuple[TensorSpec, ...]:
    """The model's outputs, in the order of the task; ConfigError where task, labels or sample do not fit them."""
    if options.task in PICTURES:
        return _in_pictures(options, found, raw)
    if len(found.outputs) == 1:
        return (output_spec(found.output, options),)
    for each in found.outputs:
        check_tensor("output", each)
    return tuple(TensorSpec(name, each.shape, each.dtype, "ANY") for name, each in named(found.outputs).items())


def named(outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Outputs as the file's signature calls them, unless one of them is called as another one's tensor."""
    titles = {each.title or each.name: each for each in outputs}
    names = {each.name: each for each in outputs}
    clear = len(titles) == len(outputs) and all(names.get(title, each) is each for title, each in titles.items())
    return titles if clear else names


def _in_pictures(options: Options, found: ModelFacts, raw: RawSpec) -> tuple[TensorSpec, ...]:
    task = options.task
    if raw.kind != "image":
        raise ConfigError(f"--task {task}: takes pictures, the model's samples are of kind {raw.kind}; use --task raw")
    if not options.labels:
        raise ConfigError(f"--labels: name the classes of --task {task}, in the model's order, or use --task raw")
    for each in found.outputs:
        check_tensor("output", each)
    sides, classes = [each.shape[1:] for each in found.outputs], len(options.labels)
    try:
        if task == "segmentation":
            [output] = found.outputs
            layout = task_outputs.mask_layout(sides[0], classes, raw.shape[:2])
            return (TensorSpec(output.name, output.shape, output.dtype, layout),)
        if any(step["step"] == "resize" for step in options.preprocess):
            raise ConfigError(
                "--preprocess: boxes lie in the pixels that the model sees; leave out resize, and --size: pictures of "
                f"any size are brought to {raw.shape[0]}×{raw.shape[1]} before, as --fit says"
            )
        places = task_outputs.box_outputs(sides, classes, raw.shape[:2], _boxes(options, found))
    except ModelError as error:
        raise ModelError(f"{options.model}: {error}; or use --task raw") from None
    chosen = [found.outputs[place] for place in places]
    return tuple(TensorSpec(each.name, each.shape, each.dtype, "ANY") for each in chosen)


def _boxes(options: Options, found: ModelFacts) -> int | None:
    """The place of the output with the boxes, where it is named; ConfigError where it has to be."""
    called = [*named(found.outputs)]
    if options.boxes is not None:
        known = {each.name: place for place, each in enumerate(found.outputs)}
        known |= {name: place for place, name in enumerate(called)}
        if options.boxes not in known:
            raise ConfigError(f"--boxes {options.boxes}: the model has no such output; it has {', '.join(called)}")
        return known[options.boxes]
    last = [each.shape[-1] for each in found.outputs]
    if len(last) == 2 and last == [boxes.BOX_SIDES, boxes.BOX_SIDES]:
        raise ConfigError(
            f"--boxes: {' and '.join(called)} both give {boxes.BOX_SIDES} numbers for each point; name the output with "
            "the boxes"
        )
    return None


def check_outputs(draft: Manifest, outputs: np.ndarray, say: Say) -> None:
    """What recorded outputs (n, …) of a task in pictures show; ModelError for boxes and scores of another kind."""
    if draft.task == "segmentation":
        kinds, counts = np.unique(outputs.argmax(axis=1), return_counts=True)
        shares = {draft.labels[kind]: count / counts.sum() for kind, count in zip(kinds, counts, strict=True)}
        side = masks.cell_size(draft.raw.shape[:2], outputs.shape[2:])
        shown = ", ".join(f"{label} {share:.0%}" for label, share in sorted(shares.items(), key=lambda one: -one[1]))
        say(f"masks       of {side}×{side} pixels a cell; the {len(outputs)} recorded ones: {shown}")
    if draft.task == "detection":
        _check_scores(outputs[..., boxes.BOX_SIDES :])
        _say_boxes(draft, outputs, say)


def _check_scores(scores: np.ndarray) -> None:
    if scores.min() >= 0 and scores.max() <= 1:
        raise ModelError(
            f"the scores of all {len(scores)} recorded outputs lie from 0 to 1, as after a sigmoid; a bundle takes the "
            "sigmoid itself: export the logits before it"
        )


def _say_boxes(draft: Manifest, outputs: np.ndarray, say: Say) -> None:
    """How many boxes there are and how large; ModelError where most of them begin or end far outside the picture."""
    size = draft.raw.shape[:2]
    options = boxes.BoxOptions(**draft.boxes or {})
    decode = boxes.Decoder(size, outputs.shape[1], options)
    found = [decode(each).sides for each in outputs]
    stray = _stray(outputs, decode, size)
    if len(stray) and stray.mean() > MOST_STRAY:
        raise ModelError(
            f"{stray.mean():.0%} of the boxes with a probability of {options.least_probability:g} or more reach far "
            "beyond the picture; a bundle's boxes are distances from each point to the four sides, in strides: see "
            "https://arxiv.org/abs/1904.01355, or use --task raw"
        )
    sides = np.concatenate(found)
    if not len(sides):
        say(
            f"boxes       none in the {len(outputs)} recorded inputs with a probability of "
            f"{options.least_probability:g} or more; where there should be some, look at --preprocess and --threshold"
        )
        return
    wide, high = (np.median(sides[:, end] - sides[:, start]) for start, end in ((0, 2), (1, 3)))
    say(
        f"boxes       {len(sides)} in the {len(outputs)} recorded inputs with a probability of "
        f"{options.least_probability:g} or more, half of them larger than {wide:.0f}×{high:.0f} pixels"
    )


def _stray(outputs: np.ndarray, decode: boxes.Decoder, size: tuple[int, ...]) -> np.ndarray:
    """(boxes,) bool of all with a sufficient logit."""
    picture, point = np.nonzero((outputs[..., boxes.BOX_SIDES :] >= decode.least_logit).any(axis=2))
    sides = decode.places[point] + outputs[picture, point, : boxes.BOX_SIDES] * decode.reaches[point]
    low, high, limits = sides[:, :2], sides[:, 2:], decode.limits[:2]
    beyond: np.ndarray = ((low < -STRAY * limits) | (high > (1 + STRAY) * limits)).any(axis=1)
    return beyond


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


def input_specs(options: Options, found: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
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


def input_lines(options: Options, found: ModelFacts, raw: RawSpec) -> Iterator[str]:
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
    return max(int(ends.min), -LARGEST_EXACT_INTEGER), min(int(ends.max), LARGEST_EXACT_INTEGER)
