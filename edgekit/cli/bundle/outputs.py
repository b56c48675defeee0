"""A model's outputs, as its task has them: boxes and logits, a grid of classes, or all of them by their names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.cli.bundle.examine import ModelFacts
from edgekit.cli.bundle.infer import Tensor, check_tensor, output_spec
from edgekit.cli.bundle.options import Options
from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import task_outputs
from edgekit.runner import boxes, masks
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec

PICTURES = ("detection", "segmentation")
"""Tasks whose answers lie in the pixels of a picture."""
STRAY, MOST_STRAY = 0.25, 0.5
"""How far beyond the picture a box strays, as a share of its sides, and the share of such boxes that is no chance."""

Say = Callable[[str], None]


def specs(options: Options, found: ModelFacts, raw: RawSpec) -> tuple[TensorSpec, ...]:
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
    if len(last) == 2 and last == [boxes.SIDES, boxes.SIDES]:
        raise ConfigError(
            f"--boxes: {' and '.join(called)} both give {boxes.SIDES} numbers for each point; name the output with the "
            "boxes"
        )
    return None


def check(draft: Manifest, outputs: np.ndarray, say: Say) -> None:
    """What recorded outputs (n, …) of a task in pictures show; ModelError for boxes and scores of another kind."""
    if draft.task == "segmentation":
        kinds, counts = np.unique(outputs.argmax(axis=1), return_counts=True)
        shares = {draft.labels[kind]: count / counts.sum() for kind, count in zip(kinds, counts, strict=True)}
        side = masks.cell(draft.raw.shape[:2], outputs.shape[2:])
        shown = ", ".join(f"{label} {share:.0%}" for label, share in sorted(shares.items(), key=lambda one: -one[1]))
        say(f"masks       of {side}×{side} pixels a cell; the {len(outputs)} recorded ones: {shown}")
    if draft.task == "detection":
        _check_scores(outputs[..., boxes.SIDES :])
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
    options = boxes.Options(**draft.boxes or {})
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
    picture, point = np.nonzero((outputs[..., boxes.SIDES :] >= decode.least_logit).any(axis=2))
    sides = decode.places[point] + outputs[picture, point, : boxes.SIDES] * decode.reaches[point]
    low, high, limits = sides[:, :2], sides[:, 2:], decode.limits[:2]
    beyond: np.ndarray = ((low < -STRAY * limits) | (high > (1 + STRAY) * limits)).any(axis=1)
    return beyond
