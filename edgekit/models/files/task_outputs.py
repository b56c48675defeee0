"""The outputs of a model file for a task: in the task's order, for many samples, and converted to logits.

In the task's order, boxes come before logits, and channels before rows and columns, whatever their order in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.models.files.interface import Layout, OpenedModel, Run
from edgekit.runner import boxes, masks, output_vector
from edgekit.runner.box_heads import HeadDecoder, converted_shape
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.errors import BundleError

Shapes = Sequence[Sequence[int]]
MAX_OUTPUTS = {"detection": 2}
"""How many outputs a file may have, by task; one for tasks that are not listed."""
MAX_RAW_OUTPUTS = 32


def box_outputs(shapes: Shapes, classes: int, size: Sequence[int], boxes_index: int | None = None) -> list[int]:
    """Return the indices of a detector's outputs, boxes first; one index if they are joined.

    Parameters
    ----------
    shapes
        Shapes of the outputs without the batch.
    classes
        Number of classes.
    size
        Height and width of a sample.
    boxes_index
        The index of the boxes, if it is known. It matters only with 4 classes, where both outputs have the same shape;
        without it, the first of them is taken for the boxes.

    Raises
    ------
    ModelError
        The outputs are not those of a detector, or their points do not belong to grids over the image.
    """
    needed = boxes.BOX_SIDES + classes
    shapes_text = " and ".join(str(list(each)) for each in shapes)
    must = (
        f"gives {shapes_text} for each sample; a detection of {classes} classes gives boxes "
        f"[points, {boxes.BOX_SIDES}] and logits [points, {classes}], or [points, {needed}] in one"
    )
    order = list(range(len(shapes)))
    if len(order) == 2:
        first = next((index for index in order if _width(shapes[index]) == boxes.BOX_SIDES), 0)
        first = first if boxes_index is None else boxes_index
        order = [first, 1 - first]
        if [_width(shapes[index]) for index in order] != [boxes.BOX_SIDES, classes]:
            raise ModelError(must)
    joined = output_vector.shape([shapes[index] for index in order])
    if len(order) not in (1, 2) or len(joined) != 2 or joined[1] != needed:
        is_transposed = len(joined) == 2 and joined[0] == needed
        raise ModelError(f"{must}{'; export it with its points on the first axis' if is_transposed else ''}")
    try:
        boxes.grid_strides(size, joined[0])
    except BundleError as error:
        raise ModelError(str(error)) from None
    return order


def head_outputs(shapes: Shapes, head: dict[str, Any]) -> list[int]:
    """Return the indices of a published detector's outputs in the order of the parts of its head.

    Converters may reorder the outputs, so they are recognised by their shapes. Outputs of equal shape keep their order.

    Raises
    ------
    ModelError
        The outputs do not have the shapes of the parts.
    """
    for order in permutations(range(len(shapes))):
        try:
            converted_shape(head, [shapes[index] for index in order])
        except BundleError:
            continue
        return list(order)
    parts = "; ".join(", ".join(names) for names in head["parts"])
    raise ModelError(f"gives {' and '.join(str(list(each)) for each in shapes)}; its head needs outputs with {parts}")


def mask_layout(shape: Sequence[int], classes: int, size: Sequence[int]) -> str:
    """Return the layout of a segmentation's output, NCHW or NHWC.

    Parameters
    ----------
    shape
        Shape of the output without the batch.
    size
        Height and width of a sample.

    Raises
    ------
    ModelError
        The output is not a grid over the image with one channel for each class, or could have either layout.
    """
    fitting = {
        layout: grid
        for layout, grid, channels in (("NCHW", shape[1:], shape[:1]), ("NHWC", shape[:2], shape[2:]))
        if len(shape) == 3 and list(channels) == [classes]
    }
    if not fitting:
        advice = "; make two channels of the one, by concatenating -x and x" if 1 in (*shape[:1], *shape[-1:]) else ""
        raise ModelError(
            f"gives {list(shape)} for each sample; a segmentation of {classes} classes gives logits "
            f"[{classes}, rows, columns] or [rows, columns, {classes}]{advice}"
        )
    fault = ""
    for layout, grid in list(fitting.items()):
        try:
            masks.cell_size(size, grid)
        except BundleError as error:
            fault = fault or str(error)
            del fitting[layout]
    if not fitting:
        raise ModelError(f"gives {list(shape)} for each sample: {fault}")
    if len(fitting) == 2:
        raise ModelError(f"gives {list(shape)} for each sample, its classes first or last; export it with another grid")
    return next(iter(fitting))


def _width(shape: Sequence[int]) -> int:
    return shape[-1] if len(shape) == 2 else 0


IMAGE_TASKS = (*tasks.BOX_TASKS, "segmentation")
"""Tasks whose outputs are not one number for each class or value."""


@dataclass(frozen=True)
class TaskOutputs:
    """The outputs that a file needs for a task: a number for each class or value, boxes with logits, or a grid.

    `classes` is the number of classes or values. `size` is the height and width of a sample. `head` is that of a
    bundle's manifest, for a published detector. `keypoints` is the number of keypoints of an object, which matters only
    as long as the head is not known.
    """

    classes: int
    task: Task = "classification"
    size: tuple[int, ...] = ()
    head: dict[str, Any] | None = None
    keypoints: int = 0

    @property
    def max_outputs(self) -> int:
        """How many outputs a file may have."""
        return len(self.head["parts"]) if self.head else MAX_OUTPUTS.get(self.task, 1)

    @property
    def has_masks(self) -> bool:
        """Whether each box has a mask."""
        return self.task == "instance_masks"

    @property
    def is_plain(self) -> bool:
        """Whether the answer for a sample is one number for each class or value."""
        return self.task not in IMAGE_TASKS

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Join a file's outputs (n, …), in its own order, in one array (n, …).

        Raises ModelError if they are not the outputs of the task.
        """
        shapes = [part.shape[1:] for part in parts]
        if self.task in tasks.BOX_TASKS:
            order = self.task_order(shapes)
            joined = output_vector.join([parts[index] for index in order])
            return HeadDecoder(self.head, [shapes[index] for index in order])(joined) if self.head else joined
        if self.task == "segmentation":
            is_channels_last = mask_layout(shapes[0], self.classes, self.size) == "NHWC"
            return parts[0].transpose(0, 3, 1, 2) if is_channels_last else parts[0]
        return parts[0]

    def in_task_order(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return a manifest's outputs in the task's order; the grid of a segmentation gets its layout."""
        shapes = [each.shape[1:] for each in outputs]
        if self.task in tasks.BOX_TASKS:
            return tuple(outputs[index] for index in self.task_order(shapes))
        if self.task == "segmentation":
            layout = mask_layout(shapes[0], self.classes, self.size)
            return (replace(outputs[0], layout=layout),)
        return tuple(outputs)

    def check_scores(self, answers: np.ndarray) -> None:
        """Raise ModelError if the scores in a detector's answers (n, …) seem to have passed through a sigmoid."""
        if self.task != "detection" or self.head:
            return
        scores = answers[..., boxes.BOX_SIDES :]
        if scores.min() >= 0 and scores.max() <= 1:
            raise ModelError(
                f"the scores of all {len(scores)} answers lie from 0 to 1, as after a sigmoid, which is applied after "
                "the model anyway: export the logits before it"
            )

    def task_order(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """Return the indices of a file's outputs in the order of the task, by their shapes without the batch."""
        if self.head:
            return head_outputs(shapes, self.head)
        if self.task == "detection":
            return box_outputs(shapes, self.classes, self.size)
        return list(range(len(shapes)))


class RawOutputs(TaskOutputs):
    """All outputs of a file, joined as they are; `shapes` are known once the file was opened or run."""

    shapes: list[tuple[int, ...]]

    @property
    def max_outputs(self) -> int:
        """See `TaskOutputs`."""
        return MAX_RAW_OUTPUTS

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Join the outputs in the order of the file."""
        self._remember([part.shape[1:] for part in parts])
        return output_vector.join([part.astype(np.float32) for part in parts])

    def in_task_order(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return the outputs in the order of the file."""
        self._remember([each.shape[1:] for each in outputs])
        return tuple(outputs)

    def _remember(self, shapes: Sequence[tuple[int, ...]]) -> None:
        object.__setattr__(self, "shapes", [tuple(shape) for shape in shapes])


ANY_OUTPUT = TaskOutputs(0)
"""For a file with one output, which is used unchanged."""


def for_task(
    task: Task, classes: int, sample: Sequence[int], head: dict[str, Any] | None = None, keypoints: int = 0
) -> TaskOutputs:
    """Return the outputs that a task needs; `sample` is the shape of a preprocessed sample, channels last."""
    return TaskOutputs(classes, task, tuple(sample[:2]) if len(sample) == 3 else (), head, keypoints)


BATCH, PROBES = 32, 4
"""The number of samples in a batch, and how many samples of the first batch are also run alone for comparison."""
BATCH_TOLERANCE = 1e-3
"""The largest allowed difference between a sample's scores in a batch and alone, as a share of the largest score."""
SUM_TOLERANCE, MAX_SUM_TOLERANCE = 1e-3, 0.25
"""The largest allowed difference between a sum of probabilities and 1: for floats, and for the coarsest integers."""
MIN_PROBABILITY = 1e-7
"""Floating-point probabilities are limited to this distance from 0 and from 1 before a logarithm is computed."""

OutputKind = Literal["logits", "probabilities", "sigmoids"]
"""What the outputs of a classifier are: logits, probabilities that sum to 1, or a separate sigmoid for each class."""

Prepare = Callable[[np.ndarray], np.ndarray]
Done = Callable[[int], None]


def outputs(
    model: OpenedModel, layout: Layout, x: np.ndarray, prepare: Prepare, needed: TaskOutputs, done: Done
) -> np.ndarray:
    """Return the answers (n, …), float32, of a model file for raw samples (n, *sample).

    Parameters
    ----------
    prepare
        Makes the model's input from a batch of raw samples.
    done
        Is called with the number of samples that have been answered so far.

    Raises
    ------
    ModelError
        The outputs are not those of the task, or there is NaN or infinity among them.
    """
    run, size = fastest_run(model, layout, prepare(x[:BATCH]), needed)
    answers = np.empty((0,), dtype=np.float32)
    for start in range(0, len(x), size):
        batch = run_batch(run, prepare(x[start : start + size]), size, needed)
        if not start:
            answers = np.empty((len(x), *batch.shape[1:]), dtype=np.float32)
        if not np.isfinite(batch).all():
            bad = int(np.argmin(np.isfinite(batch).reshape(len(batch), -1).all(axis=1)))
            raise ModelError(
                f"gave {batch[bad][~np.isfinite(batch[bad])][0]} for sample {start + bad}; "
                "check its preprocess, or export it again"
            )
        answers[start : start + size] = batch
        done(start + len(batch))
    return answers


def to_logits(outputs: np.ndarray, step: float) -> np.ndarray:
    """Convert outputs (n, classes), which are logits or come from a softmax or sigmoids, to logits (n, classes).

    The logarithm of probabilities equals the logits up to a constant in each row, which makes no difference to softmax
    and therefore to any distillation loss. For sigmoids p, the logit is log(p / (1 - p)). Softmax turns these logits
    into the probability of each class given that exactly one class applies, as in a classification.

    Values that were rounded to 0 or 1 are moved inwards by half a step, or by MIN_PROBABILITY for floats. They are
    moved by less if another value is closer, so that the order of the classes stays the same. `step` is the difference
    between two adjacent values of integer outputs, and 0 for floats.
    """
    kind, margin = output_kind(outputs, step), step / 2 or MIN_PROBABILITY
    if kind == "probabilities":
        return np.log(np.maximum(outputs, np.float32(margin)))
    if kind == "sigmoids":
        sigmoids = outputs.astype(np.float64)  # because 1 - p is exact in float64
        inside = np.clip(sigmoids, _value_for_zero(sigmoids, margin), 1 - _value_for_zero(1 - sigmoids, margin))
        return (np.log(inside) - np.log1p(-inside)).astype(np.float32)
    return outputs


def _value_for_zero(sigmoids: np.ndarray, margin: float) -> float:
    """Return the value that replaces 0: `margin`, or half of the smallest positive value if that is less."""
    return min(margin, float(sigmoids[sigmoids > 0].min()) / 2)


def output_kind(outputs: np.ndarray, step: float) -> OutputKind:
    """Detect whether outputs (n, classes) are logits, probabilities or sigmoids.

    The logits of many samples do not all lie between 0 and 1. So if all outputs lie in that range, but do not sum to 1,
    they are sigmoids. `step` is the difference between two adjacent values of integer outputs, and 0 for floats.
    """
    if are_probabilities(outputs, step):
        return "probabilities"
    inside = (outputs >= 0).all() and (outputs <= 1).all() and ((outputs > 0) & (outputs < 1)).any()
    return "sigmoids" if inside else "logits"


def are_probabilities(outputs: np.ndarray, step: float) -> bool:
    """Return whether outputs (n, classes) are those of a softmax: none is negative, and every row sums to 1.

    A sum may differ from 1 by SUM_TOLERANCE, and for integers by one `step` more for each class, because integer
    kernels do not round to the nearest value.
    """
    slack = min(SUM_TOLERANCE + outputs.shape[1] * step, MAX_SUM_TOLERANCE)
    sums = outputs.sum(axis=1, dtype=np.float64)
    return bool((outputs >= 0).all() and (np.abs(sums - 1) <= slack).all())


def check_answers(
    name: str,
    answers: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    preprocess: Sequence[dict[str, Any]],
    task: tasks.Task = "classification",
) -> None:
    """Raise ModelError if a model is not better than one that always gives the same answer."""
    if why := tasks.why_no_better_than_guessing(task, answers, labels):
        output_names = "values" if task == "regression" else "classes"
        raise ModelError(
            f"{name}: {why}; check its preprocess ({preprocess or 'none'}) and that its {output_names} are in "
            f"this order: {', '.join(classes)}"
        )


def fastest_run(model: OpenedModel, layout: Layout, first: np.ndarray, needed: TaskOutputs) -> tuple[Run, int]:
    """Return the function that runs the model fastest, and its batch size.

    The batch size is BATCH if the model accepts that and gives the same answers as for single samples, and otherwise
    the size that the model was exported for. The answers are compared because a graph that was exported for one sample
    may accept more and mix them up, or quantize all samples of a batch with the same scale. `first` are the first
    samples, preprocessed.
    """
    smallest = max(model.shape[0], 1)
    alone = model.for_shape((smallest, *layout.sides))
    probes = range(0, min(PROBES, len(first)), smallest)
    expected = np.concatenate([run_batch(alone, first[start : start + smallest], smallest, needed) for start in probes])
    size = min(BATCH, len(first))
    if size <= smallest:
        return alone, smallest
    try:
        batched = model.for_shape((size, *layout.sides))
        answers = run_batch(batched, first, size, needed)[: len(expected)]
    except Exception:  # the libraries' errors have no common base class; the smallest batch has just worked
        return alone, smallest
    same = np.allclose(answers, expected, rtol=0, atol=BATCH_TOLERANCE * float(np.abs(expected).max()))
    return (batched, size) if same else (alone, smallest)


TWO_SCORES = "torch.cat([1 - p, p], dim=1), or keras.layers.Concatenate()([1 - p, p])"
"""Code that converts a probability to the scores of two classes."""


def _advice(outputs: np.ndarray, classes: int) -> str:
    """Return advice for outputs (n, …) that are not scores of classes; empty if there is none."""
    if outputs.dtype.kind in "iu" and outputs.size == len(outputs):
        return "; these are class indices: export it without its argmax"
    if classes == 2 and outputs.size == len(outputs):
        return f"; if that is the probability of the second class, let the model return both: {TWO_SCORES}"
    return ""


def run_batch(run: Run, batch: np.ndarray, size: int, needed: TaskOutputs) -> np.ndarray:
    """Return the answers for up to `size` samples. A smaller batch is filled up with copies of its last sample.

    Raises ModelError if the outputs are not those of the task.
    """
    count = len(batch)
    if count < size:
        batch = np.concatenate([batch, np.repeat(batch[-1:], size - count, axis=0)])
    outputs = np.asarray(run(batch))
    if not needed.is_plain:
        return _check_image_outputs(outputs, size)[:count].astype(np.float32)
    classes = needed.classes
    sides, expected = ([side for side in shape if side != 1] for shape in (outputs.shape[1:], (classes,)))
    if outputs.shape[:1] != (size,) or sides != expected:
        raise ModelError(
            f"gives {list(outputs.shape[1:])} for each sample; the data have {classes} classes, but a "
            f"model file must give one score for each{_advice(outputs, classes)}"
        )
    if outputs.dtype.kind != "f":
        raise ModelError(f"gives {outputs.dtype}, which are not scores; export it with the scores as its output")
    return outputs.reshape(size, classes)[:count].astype(np.float32)


def _check_image_outputs(outputs: np.ndarray, size: int) -> np.ndarray:
    """Return the outputs; raise ModelError unless they are floats for `size` samples."""
    if outputs.shape[:1] != (size,):
        raise ModelError(f"gives {list(outputs.shape)} for {size} samples; export it with the batch first")
    if outputs.dtype.kind != "f":
        raise ModelError(f"gives {outputs.dtype}, which are not logits; export it with the logits as its output")
    return outputs
