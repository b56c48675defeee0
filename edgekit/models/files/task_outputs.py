"""What a model file gives for a task: its outputs in the task's order, for many samples, and as logits.

Such an output is the boxes or the logits of a detection, or the grid of a segmentation. An answer has boxes before
logits, and channels before rows and columns, whatever order a file has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.models.files.interface import Layout, OpenedModel, Run
from edgekit.runner import boxes, masks, output_vector
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.errors import BundleError

Shapes = Sequence[Sequence[int]]
MAX_OUTPUTS = {"detection": 2}
"""How many outputs a file may have, by task; of any other one."""


def box_outputs(shapes: Shapes, classes: int, size: Sequence[int], named: int | None = None) -> list[int]:
    """Places of a detection's outputs, boxes first, by their shapes without a batch; one place where they are joined.

    `size` is a sample's height and width. Where there are 4 classes too, `named` is the place of the boxes, else the
    first. ModelError where the outputs are none, or their points those of no grids.
    """
    needed = boxes.BOX_SIDES + classes
    shown = " and ".join(str(list(each)) for each in shapes)
    must = (
        f"gives {shown} for each sample; a detection of {classes} classes gives boxes [points, {boxes.BOX_SIDES}] and "
        f"logits [points, {classes}], or [points, {needed}] in one"
    )
    places = list(range(len(shapes)))
    if len(places) == 2:
        first = next((place for place in places if _width(shapes[place]) == boxes.BOX_SIDES), 0)
        first = first if named is None else named
        places = [first, 1 - first]
        if [_width(shapes[place]) for place in places] != [boxes.BOX_SIDES, classes]:
            raise ModelError(must)
    found = output_vector.shape([shapes[place] for place in places])
    if len(places) not in (1, 2) or len(found) != 2 or found[1] != needed:
        turned = len(found) == 2 and found[0] == needed
        raise ModelError(f"{must}{'; export it with its points before what each has' if turned else ''}")
    try:
        boxes.grid_strides(size, found[0])
    except BundleError as error:
        raise ModelError(str(error)) from None
    return places


def mask_layout(shape: Sequence[int], classes: int, size: Sequence[int]) -> str:
    """NCHW or NHWC: how a segmentation's output stands, by its shape without a batch; ModelError where it is none."""
    fitting = {
        layout: grid
        for layout, grid, channels in (("NCHW", shape[1:], shape[:1]), ("NHWC", shape[:2], shape[2:]))
        if len(shape) == 3 and list(channels) == [classes]
    }
    if not fitting:
        one = "; of one channel make two: a concatenation of -x and x" if 1 in (*shape[:1], *shape[-1:]) else ""
        raise ModelError(
            f"gives {list(shape)} for each sample; a segmentation of {classes} classes gives logits "
            f"[{classes}, rows, columns] or [rows, columns, {classes}]{one}"
        )
    said = ""
    for layout, grid in list(fitting.items()):
        try:
            masks.cell_size(size, grid)
        except BundleError as error:
            said = said or str(error)
            del fitting[layout]
    if not fitting:
        raise ModelError(f"gives {list(shape)} for each sample: {said}")
    if len(fitting) == 2:
        raise ModelError(f"gives {list(shape)} for each sample, its classes first or last; export it with another grid")
    return next(iter(fitting))


def _width(shape: Sequence[int]) -> int:
    return shape[-1] if len(shape) == 2 else 0


IMAGE_TASKS = ("detection", "segmentation")
"""Tasks with other outputs than a number for each class or value."""


@dataclass(frozen=True)
class TaskOutputs:
    """Of a file: a number for each of `classes`, boxes and logits, or a grid; `size` is a sample's height and width."""

    classes: int
    task: Task = "classification"
    size: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        """How many outputs a file may have."""
        return MAX_OUTPUTS.get(self.task, 1)

    @property
    def is_plain(self) -> bool:
        """Whether a sample's answer is a number for each class or value."""
        return self.task not in IMAGE_TASKS

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """A file's outputs (n, …), in its own order, as one array (n, …); ModelError where they are not the task's."""
        shapes = [part.shape[1:] for part in parts]
        if self.task == "detection":
            return output_vector.join([parts[place] for place in self.places(shapes)])
        if self.task == "segmentation":
            turned = mask_layout(shapes[0], self.classes, self.size) == "NHWC"
            return parts[0].transpose(0, 3, 1, 2) if turned else parts[0]
        return parts[0]

    def ordered(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The same of a manifest's outputs: in the task's order, a grid with its layout."""
        shapes = [each.shape[1:] for each in outputs]
        if self.task == "detection":
            return tuple(outputs[place] for place in self.places(shapes))
        if self.task == "segmentation":
            layout = mask_layout(shapes[0], self.classes, self.size)
            return (replace(outputs[0], layout=layout),)
        return tuple(outputs)

    def check(self, found: np.ndarray) -> None:
        """ModelError for what answers (n, …) of a task in pictures show: scores behind a sigmoid."""
        if self.task != "detection":
            return
        scores = found[..., boxes.BOX_SIDES :]
        if scores.min() >= 0 and scores.max() <= 1:
            raise ModelError(
                f"the scores of all {len(scores)} answers lie from 0 to 1, as after a sigmoid, which comes behind the "
                "model anyway: export the logits before it"
            )

    def places(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """Of a file's outputs, by their shapes without a batch, in the task's order."""
        if self.task == "detection":
            return box_outputs(shapes, self.classes, self.size)
        return list(range(len(shapes)))


ANY_OUTPUT = TaskOutputs(0)
"""A file with one output, taken as it is."""


def for_task(task: Task, classes: int, sample: Sequence[int]) -> TaskOutputs:
    """For samples after their preprocess: (height, width, channels) of pictures."""
    return TaskOutputs(classes, task, tuple(sample[:2]) if len(sample) == 3 else ())


BATCH, PROBES = 32, 4
"""Samples at a time, and how many of the first batch are also asked alone."""
BATCH_TOLERANCE = 1e-3
"""How far a score in a batch may be from that of its sample alone, as a share of the largest."""
SUM_TOLERANCE, MAX_SUM_TOLERANCE = 1e-3, 0.25
"""How far the sum of probabilities may be from 1: for floats, and however coarse the integers."""
MIN_PROBABILITY = 1e-7
"""The least probability of floats that a logarithm is taken of, and how far from 1 the largest is taken to be."""

OutputKind = Literal["logits", "probabilities", "sigmoids"]
"""What a model of classes ends with: probabilities that sum to 1, or for each class one of its own."""

Prepare = Callable[[np.ndarray], np.ndarray]
Done = Callable[[int], None]


def outputs(
    model: OpenedModel, layout: Layout, x: np.ndarray, prepare: Prepare, needed: TaskOutputs, done: Done
) -> np.ndarray:
    """Answers (n, …) float32 of raw samples (n, *sample); `prepare` makes the model's input of some of them.

    ModelError for another number of scores, for no scores at all, and for NaN or infinity among them.
    """
    run, size = fastest_run(model, layout, prepare(x[:BATCH]), needed)
    found = np.empty((0,), dtype=np.float32)
    for start in range(0, len(x), size):
        some = run_batch(run, prepare(x[start : start + size]), size, needed)
        if not start:
            found = np.empty((len(x), *some.shape[1:]), dtype=np.float32)
        if not np.isfinite(some).all():
            bad = int(np.argmin(np.isfinite(some).reshape(len(some), -1).all(axis=1)))
            raise ModelError(
                f"gave {some[bad][~np.isfinite(some[bad])][0]} for sample {start + bad}; "
                "check its preprocess, or export it again"
            )
        found[start : start + size] = some
        done(start + len(some))
    return found


def to_logits(found: np.ndarray, step: float) -> np.ndarray:
    """Logits (n, classes) of outputs (n, classes), be they logits or what a softmax or sigmoids made of them.

    The logarithm of probabilities is the logits but for a constant in each row, which softmax, and so every loss of a
    distillation, takes away. Of sigmoids p it is log(p / (1 - p)). Softmax turns these into the probability of each
    class where exactly one holds, as in a classification. What was rounded to 0 or 1 counts as half a step from there,
    or LEAST, and as less where another value is nearer: a file whose likeliest class is unlikely keeps its answer.
    """
    kind, least = output_kind(found, step), step / 2 or MIN_PROBABILITY
    if kind == "probabilities":
        return np.log(np.maximum(found, np.float32(least)))
    if kind == "sigmoids":
        shares = found.astype(np.float64)  # in which 1 - p is exact
        inside = np.clip(shares, _for_nought(shares, least), 1 - _for_nought(1 - shares, least))
        return (np.log(inside) - np.log1p(-inside)).astype(np.float32)
    return found


def _for_nought(shares: np.ndarray, least: float) -> float:
    """What a 0 counts as: `least`, or half of the smallest share that is there."""
    return min(least, float(shares[shares > 0].min()) / 2)


def output_kind(found: np.ndarray, step: float) -> OutputKind:
    """What outputs (n, classes) are; `step` is between two neighbouring values of integers, 0 for floats.

    Logits of many samples do not all lie from 0 to 1, so what does and is no distribution is a sigmoid for each class.
    """
    if are_probabilities(found, step):
        return "probabilities"
    inside = (found >= 0).all() and (found <= 1).all() and ((found > 0) & (found < 1)).any()
    return "sigmoids" if inside else "logits"


def are_probabilities(found: np.ndarray, step: float) -> bool:
    """Whether outputs (n, classes) are after a softmax: none is negative and every row's sum is 1.

    Within SUM, and integers, `step` apart, miss each of them by up to a step more: their kernels do not round to the
    nearest.
    """
    slack = min(SUM_TOLERANCE + found.shape[1] * step, MAX_SUM_TOLERANCE)
    sums = found.sum(axis=1, dtype=np.float64)
    return bool((found >= 0).all() and (np.abs(sums - 1) <= slack).all())


def check_answers(
    name: str,
    found: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    preprocess: Sequence[dict[str, Any]],
    task: tasks.Task = "classification",
) -> None:
    """ModelError for a model that is right no more often than one that always says the same."""
    if why := tasks.no_better_than_guessing(task, found, labels):
        said = "values" if task == "regression" else "classes"
        raise ModelError(
            f"{name}: {why}; check its preprocess ({preprocess or 'none'}) and that its {said} are in "
            f"this order: {', '.join(classes)}"
        )


def fastest_run(model: OpenedModel, layout: Layout, first: np.ndarray, needed: TaskOutputs) -> tuple[Run, int]:
    """BATCH samples at a time if the model takes them and answers as it does alone, else as many as it was made for.

    A graph made for one sample may take more and mix them up, or share a scale among all that are asked at once.
    """
    least = max(model.shape[0], 1)
    alone = model.sized((least, *layout.sides))
    probes = range(0, min(PROBES, len(first)), least)
    expected = np.concatenate([run_batch(alone, first[start : start + least], least, needed) for start in probes])
    size = min(BATCH, len(first))
    if size <= least:
        return alone, least
    try:
        many = model.sized((size, *layout.sides))
        seen = run_batch(many, first, size, needed)[: len(expected)]
    except Exception:  # the libraries' errors share no base class; alone it has just worked
        return alone, least
    same = np.allclose(seen, expected, rtol=0, atol=BATCH_TOLERANCE * float(np.abs(expected).max()))
    return (many, size) if same else (alone, least)


TWO_SCORES = "torch.cat([1 - p, p], dim=1), or keras.layers.Concatenate()([1 - p, p])"
"""What makes of a probability the scores of two classes."""


def _instead(found: np.ndarray, classes: int) -> str:
    """What to do about outputs (n, …) that are no scores of classes, where that is known."""
    if found.dtype.kind in "iu" and found.size == len(found):
        return "; these are numbers of classes: export it without its argmax"
    if classes == 2 and found.size == len(found):
        return f"; where that is the probability of the second, let it end in both: {TWO_SCORES}"
    return ""


def run_batch(run: Run, batch: np.ndarray, size: int, needed: TaskOutputs) -> np.ndarray:
    """Answers to up to `size` samples; where there are fewer, the last one is repeated."""
    count = len(batch)
    if count < size:
        batch = np.concatenate([batch, np.repeat(batch[-1:], size - count, axis=0)])
    found = np.asarray(run(batch))
    if not needed.is_plain:
        return _of_all(found, size)[:count].astype(np.float32)
    classes = needed.classes
    sides, expected = ([side for side in shape if side != 1] for shape in (found.shape[1:], (classes,)))
    if found.shape[:1] != (size,) or sides != expected:
        raise ModelError(
            f"gives {list(found.shape[1:])} for each sample; the data have {classes} classes, and a model file one "
            f"score for each{_instead(found, classes)}"
        )
    if found.dtype.kind != "f":
        raise ModelError(f"gives {found.dtype}, which are no scores; export it with the output before that")
    return found.reshape(size, classes)[:count].astype(np.float32)


def _of_all(found: np.ndarray, size: int) -> np.ndarray:
    """An answer to each of so many samples, real numbers; ModelError for another number of them."""
    if found.shape[:1] != (size,):
        raise ModelError(f"gives {list(found.shape)} for {size} samples; export it with the batch first")
    if found.dtype.kind != "f":
        raise ModelError(f"gives {found.dtype}, which are no logits; export it with the output before that")
    return found
