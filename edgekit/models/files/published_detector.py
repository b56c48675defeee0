"""Read the file of a detector that others published: recognise its outputs, and cut off its decoding where possible.

A file is recognised by the shapes of its outputs and by what it gives for one image, not by the name of its network.
An ONNX file is then cut before its decoding (`onnx_detector`). A file that cannot be cut keeps its outputs, and the
`head` of a manifest says how they are read (`edgekit.runner.box_heads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import detector_names
from edgekit.core.errors import ModelError
from edgekit.models.files import cut_check, interface, module, onnx_batch, onnx_detector
from edgekit.models.files import onnx as onnx_file
from edgekit.models.files.detector_forms import NEAR_STRIDES, Form, forms
from edgekit.models.files.file_facts import onnx_metadata
from edgekit.models.files.task_outputs import RawOutputs, TaskOutputs, box_outputs
from edgekit.runner import boxes, instance_masks, output_vector

MAX_QUERIES = 1000
"""Largest number of boxes of a detector that predicts a set of boxes, such as DETR, instead of one for each point."""
END_TO_END = "_e2e"
MAX_TRACED = 8
"""Most images, beside a random one, in which a file may find the boxes by which it is recognised."""
EXPORTER_TASKS = {"detection": "detect", "keypoints": "pose", "instance_masks": "segment"}
"""The tasks of edgekit, and what Ultralytics calls them in the metadata of a file."""
OTHER_TASKS = {
    "detect": "predicts boxes alone; use data with boxes and task: detection",
    "pose": "predicts keypoints; use data that have them, with the source keypoints and task: keypoints",
    "segment": (
        "predicts masks of instances; use data that have them, with the source instance_masks and task: instance_masks"
    ),
    "obb": (
        "predicts rotated boxes, which have an angle; labels, accuracy and suppression are missing in edgekit for "
        "them, so export a network for boxes without an angle"
    ),
    "classify": "is a classifier; use data with a class for each picture and task: classification",
}
"""Tasks in the metadata of files exported by Ultralytics, and what to say of a file for another one."""
ROTATED = (
    "; an output of {0} numbers, the last an angle, would be rotated boxes, for which labels, accuracy and suppression "
    "are missing in edgekit"
)


@dataclass(frozen=True)
class PublishedDetector:
    """A detector whose outputs are not the distances and logits that `edgekit.runner.boxes` decodes.

    Attributes
    ----------
    decoding
        What the outputs of the file are, in words.
    content
        The ONNX file without its decoding, or for pictures of one size if it takes any; None if it stays as it is.
    head
        How the outputs of the cut file, or of the whole one, are read; None if they are distances and logits.
    is_suppressed
        Whether there is one box for each object, so that overlapping boxes are not to be dropped.
    name
        The name of such a detector, see `edgekit.core.detector_names`.
    seen
        What the file gave for one image, output by output; empty if it was cut.
    """

    decoding: str
    content: bytes | None
    head: dict[str, Any] | None
    is_suppressed: bool
    name: str = ""
    seen: str = ""


def read(
    path: Path, kind: str, needed: TaskOutputs, samples: Iterable[np.ndarray] = (), head: str | None = None
) -> PublishedDetector | None:
    """Return the most likely of the `readings` of a file; None if it needs no conversion.

    Raises
    ------
    ModelError
        See `readings`; also if the readings differ in what the columns hold, and not only in what the numbers of a box
        are.
    """
    found = readings(path, kind, needed, samples, head)
    if len({_columns(each) for each in found}) > 1:
        raise ModelError(f"gives {found[0].seen}. These can be read in several ways: {describe_readings(found)}")
    return found[0] if found else None


def _columns(detector: PublishedDetector) -> str:
    """Return what the columns of the outputs hold."""
    return str([(detector.head or {}).get(key) for key in ("parts", "points_last", "background")])


def describe_readings(found: Sequence[PublishedDetector]) -> str:
    """List ways to read a file, and say how one of them is named."""
    ways = "; ".join(f"{each.name!r} ({each.decoding})" for each in found)
    return (
        f"{ways}. Name the right one as model.head or --head, or export the network with its boxes and its scores in "
        "two outputs, or as logits without its decoding"
    )


def readings(
    path: Path, kind: str, needed: TaskOutputs, samples: Iterable[np.ndarray] = (), head: str | None = None
) -> list[PublishedDetector]:
    """Return the ways in which the outputs of the detector at `path` can be read, the likeliest first.

    There is only one if the file could be cut, because that proves it, and none if it gives distances and logits, which
    need no conversion. A cut file was compared with the whole one on at most `MAX_TRACED` of the samples.

    A network for keypoints always needs one.

    Parameters
    ----------
    kind
        The kind of the file, a module of `edgekit.models.files`.
    needed
        The outputs of the task, for its classes and the size of the images.
    samples
        Images (height, width, channels) as the network takes them, in which a file that keeps only likely boxes finds
        some, whereas it may find none in a random image.
    head
        The name of the only way to read them that is considered, if that is known.

    Raises
    ------
    ModelError
        The file does not run on an image of this size, or its outputs are not those of a known head.
    ConfigError
        There is no such name.
    """
    content, is_open = _fixed_onnx(path, needed.size) if kind == "onnx" else (None, False)
    facts: dict[str, Any] = {}
    named = detector_names.parse(head) if head is not None else None
    if content is None:
        traces: Iterable[onnx_detector.Trace] = ((each, {}) for each in _outputs(path, kind, needed, samples))
    else:
        facts = onnx_metadata(content)
        if onnx_detector.HEAD in facts:
            _check_keypoints(facts[onnx_detector.HEAD].get("keypoints", 0), needed)
            if bool(facts[onnx_detector.HEAD].get("coefficients")) != needed.has_masks:
                raise ModelError(f"predicts {'boxes without masks' if needed.has_masks else OTHER_TASKS['segment']}")
            return [PublishedDetector(facts.get(onnx_detector.DECODING, ""), None, facts[onnx_detector.HEAD], False)]
        _refuse_other_tasks(facts, needed)
        samples = list(islice(samples, MAX_TRACED))
        traces = (onnx_detector.trace(content, needed.size, each) for each in (None, *samples))
    outputs: list[np.ndarray] = []
    uncut: list[PublishedDetector] = []
    for number, (outputs, tensors) in enumerate(traces):
        if named is None and _are_distances(outputs, needed):
            return []
        candidates = [
            form
            for form in _forms(outputs, needed)
            if named is None or named.fits(form.structure, form.place, form.order)
        ]
        if content is not None:
            detector = _without_decoding(content, candidates, tensors, needed, samples, _is_end_to_end(facts))
            if detector is not None:
                return [detector]
        if not uncut and (valid := [form for form in candidates if form.is_valid]):
            suppresses = content is not None and onnx_detector.suppresses(content)
            fixed = _with_output_shapes(content, outputs) if content is not None and is_open else None
            uncut = [_uncut(form, outputs, needed, suppresses, fixed) for form in valid]
        if uncut and (content is None or number):
            return uncut  # noise saturates some networks, so that a file is cut only with a picture
    if uncut:
        return uncut
    raise ModelError(_refusal(outputs, needed, head))


def _without_decoding(
    content: bytes,
    candidates: Sequence[Form],
    tensors: dict[str, np.ndarray],
    needed: TaskOutputs,
    samples: Iterable[np.ndarray],
    is_suppressed: bool,
) -> PublishedDetector | None:
    """Return an ONNX detector cut before its decoding, and before its suppression if it has one; None if impossible.

    The cut file gives the boxes of the whole one for all samples. `is_suppressed` says whether its points are one for
    each object although they belong to cells.
    """
    suppresses = onnx_detector.suppresses(content)
    for form in candidates:
        if (cut := onnx_detector.cut(content, form, tensors)) is not None:
            fields = cut[1]._asdict() if cut[1] else None
            whole = content, form.head._asdict()
            keeps: cut_check.KeptBoxes = "some" if suppresses else "best" if form.is_finished else "all"
            if not cut_check.agrees(whole, (cut[0], fields), needed, samples, keeps):
                continue
            one_each = is_suppressed or (form.is_finished and not suppresses)
            return PublishedDetector(form.description, cut[0], fields, one_each, form.name)
    return None


def _uncut(
    form: Form, outputs: Sequence[np.ndarray], needed: TaskOutputs, suppresses: bool, content: bytes | None
) -> PublishedDetector:
    """Return a detector that keeps its outputs, and its suppression if it has one.

    Raises ModelError for prototypes of masks of which nobody can say which axis is that of the channels.
    """
    if len(set(form.prototypes)) == 1:
        raise ModelError(
            f"gives prototypes {list(form.prototypes)}, whose channels may come first or last; export it for another "
            "size of pictures"
        )
    words = ", after a suppression that stays in the file" if suppresses else ""
    fields, seen = form.head._asdict(), _seen(outputs, needed)
    return PublishedDetector(f"{form.description}{words}", content, fields, _is_suppressed(form), form.name, seen)


def _forms(outputs: Sequence[np.ndarray], needed: TaskOutputs) -> list[Form]:
    return forms(outputs, needed.size, needed.classes, needed.keypoints, with_masks=needed.has_masks)


def _fixed_onnx(path: Path, size: Sequence[int]) -> tuple[bytes | None, bool]:
    """Return the ONNX file for one image of (height, width), and whether shapes of the file itself were open.

    Its input may take images of other sizes, too, or the shapes of its outputs may be unknown, as they are behind
    operators at which shape inference gives up. The file is None if it does not take channels-first images.
    """
    import onnx

    model = onnx.load_model_from_string(onnx_file.onnx(path))
    ports = onnx_batch.describe_ports(model)
    is_open = any(-1 in port["shape"] for port in (*ports["inputs"], *ports["outputs"]))
    onnx_batch.set_image_size(model, (size[0], size[1]))
    shapes = [port["shape"] for port in onnx_batch.describe_ports(model)["inputs"]]
    if shapes != [[1, 3, *size]] and shapes != [[1, 1, *size]]:
        return None, False
    return bytes(model.SerializeToString(deterministic=True)), is_open


def _with_output_shapes(content: bytes, outputs: Sequence[np.ndarray]) -> bytes:
    """Return an ONNX file whose outputs have the shapes that they had for an image."""
    import onnx

    model = onnx.load_model_from_string(content)
    for declared, output in zip(model.graph.output, outputs, strict=True):
        kind = declared.type.tensor_type.elem_type
        declared.CopyFrom(onnx.helper.make_tensor_value_info(declared.name, kind, output.shape))
    return bytes(model.SerializeToString(deterministic=True))


def _refuse_other_tasks(facts: dict[str, Any], needed: TaskOutputs) -> None:
    """Raise ModelError if the metadata say that the file is for another task, or has other keypoints."""
    task, shape = facts.get("task"), facts.get("kpt_shape")
    if isinstance(task, str) and task in OTHER_TASKS and task != EXPORTER_TASKS.get(needed.task):
        raise ModelError(f"{OTHER_TASKS[task]} (its metadata say task: {task})")
    if isinstance(shape, list) and shape and isinstance(shape[0], int):
        _check_keypoints(shape[0], needed)


def _check_keypoints(count: int, needed: TaskOutputs) -> None:
    """Raise ModelError unless a file predicts as many keypoints as the data have."""
    if count != needed.keypoints:
        raise ModelError(
            f"predicts {count} keypoints, but the data have {needed.keypoints}; both must have the same, in the same "
            "order"
        )


def _outputs(path: Path, kind: str, needed: TaskOutputs, samples: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield what a file gives for a random image and for each of the samples, each output (1, …)."""
    raw = RawOutputs(needed.classes, "detection", needed.size)
    opened = module(kind).open(path, 1, (), raw)
    channels = next((side for side in (opened.shape[1], opened.shape[-1]) if side in (1, 3)), 3)
    layout = interface.find_layout(opened.shape, (*needed.size, channels))
    run = opened.for_shape((1, *layout.sides))
    noise = np.random.default_rng(0).random((*needed.size, channels), dtype=np.float32)
    for image in (noise, *samples):
        yield output_vector.split(run(layout.arrange(image[None])), raw.shapes)


def _are_distances(outputs: Sequence[np.ndarray], needed: TaskOutputs) -> bool:
    """Whether the outputs are distances for the points of grids, and logits."""
    if needed.keypoints or needed.has_masks:
        return False
    try:
        order = box_outputs([each.shape[1:] for each in outputs], needed.classes, needed.size)
    except ModelError:
        return False
    scores = output_vector.join([outputs[index] for index in order])[..., 4:]
    return not ((scores >= 0).all() and (scores <= 1).all())


def _is_suppressed(form: Form) -> bool:
    """Whether the boxes are finished, or a set of boxes that do not belong to cells.

    EfficientDet's thousands of boxes with score and class are candidates, of which many belong to one object.
    """
    is_set = form.head.background != 0 and not form.head.priors and form.cell_distance >= NEAR_STRIDES
    return len(form.corners) <= MAX_QUERIES and (form.is_finished or is_set)


def _is_end_to_end(facts: dict[str, Any]) -> bool:
    """Whether the metadata, those of libreyolo, say that the network needs no suppression although it keeps all points.

    Its outputs are those of a network that needs one.
    """
    return str(facts.get("model_family", "")).endswith(END_TO_END)


def _seen(outputs: Sequence[np.ndarray], needed: TaskOutputs) -> str:
    """Say what a file gave for one image, output by output."""
    seen = "; ".join(
        f"{list(each.shape)} from {each.min():.3g} to {each.max():.3g}" if each.size else f"{list(each.shape)}, empty"
        for each in outputs
    )
    return f"for an image of {needed.size[1]}×{needed.size[0]} pixels {seen}"


def _refusal(outputs: Sequence[np.ndarray], needed: TaskOutputs, head: str | None) -> str:
    """Say what was seen, output by output, and what would help: another name only if there is one."""
    count, points, seen = needed.classes, needed.keypoints, _seen(outputs, needed)
    if head is not None:
        names = dict.fromkeys(form.name for form in _forms(outputs, needed) if form.is_valid)
        if names:
            return f"gives {seen}. These cannot be read as {head!r}, but as {' or '.join(map(repr, names))}"
    advice = "if the network has other classes, name all of them under data.classes, in its order"
    if points:
        widths = " or ".join(str(4 + count + columns * points) for columns in (3, 2))
        finished = " or ".join(str(6 + columns * points) for columns in (3, 2))
        return (
            f"gives {seen}. The data have {count} classes and {points} keypoints, for which a known "
            f"head gives one output of {widths} numbers for each box, or finished boxes of {finished}; {advice}"
        )
    if needed.has_masks:
        grid = "×".join(map(str, boxes.grid_shape(needed.size, instance_masks.STRIDE)))
        return (
            f"gives {seen}. The data have {count} classes, for which a known head for instance masks gives an output "
            f"of n prototypes on a grid of {grid} cells, and one of {4 + count} + n numbers for each box, or finished "
            f"boxes of 6 + n; {advice}"
        )
    has_angle = any(5 + count in each.shape[1:] for each in outputs)
    return (
        f"gives {seen}. The data have {count} classes, for "
        f"which a known head gives boxes and scores in one output of {4 + count} or {5 + count} numbers for each box, "
        f"boxes (4) and scores ({count} or {count + 1}) in two outputs, or finished boxes (6); {advice}"
        f"{ROTATED.format(5 + count) if has_angle else ''}"
    )
