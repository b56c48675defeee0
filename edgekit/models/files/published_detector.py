"""Read the file of a detector that others published: recognise its outputs, and cut off its decoding where possible.

A file is recognised by the shapes of its outputs and by what it gives for one image, not by the name of its network.
An ONNX file is then cut before its decoding (`onnx_detector`). A file that cannot be cut keeps its outputs, and the
`head` of a manifest says how they are read (`edgekit.runner.box_heads`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files import interface, module, onnx_batch, onnx_detector
from edgekit.models.files import onnx as onnx_file
from edgekit.models.files.detector_forms import NEAR_STRIDES, Form, forms
from edgekit.models.files.file_facts import onnx_metadata
from edgekit.models.files.task_outputs import RawOutputs, TaskOutputs, box_outputs
from edgekit.runner import output_vector

MAX_QUERIES = 1000
"""Largest number of boxes of a detector that predicts a set of boxes, such as DETR, instead of one for each point."""
END_TO_END = "_e2e"
OTHER_TASKS = {
    "pose": "predicts key points",
    "segment": "predicts masks of instances",
    "obb": "predicts rotated boxes, which have an angle",
    "classify": "is a classifier",
}
"""Tasks in the metadata of files exported by Ultralytics that are no detection, and what such a network does."""


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
    """

    decoding: str
    content: bytes | None
    head: dict[str, Any] | None
    is_suppressed: bool


def read(path: Path, kind: str, needed: TaskOutputs, samples: Sequence[np.ndarray] = ()) -> PublishedDetector | None:
    """Recognise the detector at `path`; None if it gives distances and logits, which need no conversion.

    Parameters
    ----------
    kind
        The kind of the file, a module of `edgekit.models.files`.
    needed
        The outputs of the task, for its classes and the size of the images.
    samples
        Images (height, width, channels) as the network takes them, an array or a list. A file that keeps only likely
        boxes finds some in them, whereas it may find none in a random image.

    Raises
    ------
    ModelError
        The file does not run on an image of this size, or its outputs are not those of a known head.
    """
    content, is_changed = _fixed_onnx(path, needed.size) if kind == "onnx" else (None, False)
    candidates: list[Form] = []
    outputs: list[np.ndarray] = []
    if content is not None:
        facts = onnx_metadata(content)
        if onnx_detector.HEAD in facts:
            return PublishedDetector(facts.get(onnx_detector.DECODING, ""), None, facts[onnx_detector.HEAD], False)
        _refuse_other_tasks(facts)
        for image in (None, *samples[:1]):  # random images saturate some networks, whose tensors then prove nothing
            outputs, tensors = onnx_detector.trace(content, needed.size, image)
            if _are_distances(outputs, needed):
                return None
            candidates = forms(outputs, needed.size, needed.classes)
            for form in candidates:
                if (cut := onnx_detector.cut(content, form, tensors)) is not None:
                    head = cut[1]._asdict() if cut[1] else None
                    is_suppressed = form.is_finished or _is_end_to_end(facts)
                    return PublishedDetector(form.description, cut[0], head, is_suppressed)
    candidates = [form for form in candidates if form.is_valid]
    if not candidates:
        for outputs in _outputs(path, kind, needed, samples):
            if _are_distances(outputs, needed):
                return None
            candidates = [form for form in forms(outputs, needed.size, needed.classes) if form.is_valid]
            if candidates:
                break
        else:
            raise ModelError(_refusal(outputs, needed))
    best = _only_reading(candidates, outputs, needed)
    fixed = _with_output_shapes(content, outputs) if content is not None and is_changed else None
    return PublishedDetector(best.description, fixed, best.head._asdict(), _is_suppressed(best))


def _only_reading(candidates: Sequence[Form], outputs: Sequence[np.ndarray], needed: TaskOutputs) -> Form:
    """Return the first of the forms that are valid for the outputs of a file.

    Raises
    ------
    ModelError
        They differ in what the columns hold, and not only in what the numbers of a box are.
    """
    readings = {(form.head.parts, form.head.points_last, form.scores_in_words): form for form in reversed(candidates)}
    if len(readings) == 1:
        return candidates[0]
    ways = "; or ".join(
        f"{', '.join(' and '.join(names) for names in form.head.parts)} ({form.description})"
        for form in reversed(readings.values())
    )
    raise ModelError(
        f"gives {_seen(outputs, needed)}. These can be read in several ways: {ways}. Export the network with its boxes "
        "and its scores in two outputs, or as logits without its decoding"
    )


def _fixed_onnx(path: Path, size: Sequence[int]) -> tuple[bytes | None, bool]:
    """Return the ONNX file for one image of (height, width), and whether the file itself takes other sizes, too.

    The first is None if the file does not take channels-first images.
    """
    import onnx

    model = onnx.load_model_from_string(onnx_file.onnx(path))
    was_open = any(-1 in port["shape"][2:] for port in onnx_batch.describe_ports(model)["inputs"])
    onnx_batch.set_image_size(model, (size[0], size[1]))
    shapes = [port["shape"] for port in onnx_batch.describe_ports(model)["inputs"]]
    if shapes != [[1, 3, *size]] and shapes != [[1, 1, *size]]:
        return None, False
    return bytes(model.SerializeToString(deterministic=True)), was_open


def _with_output_shapes(content: bytes, outputs: Sequence[np.ndarray]) -> bytes:
    """Return an ONNX file whose outputs have the shapes that they had for an image."""
    import onnx

    model = onnx.load_model_from_string(content)
    for declared, output in zip(model.graph.output, outputs, strict=True):
        kind = declared.type.tensor_type.elem_type
        declared.CopyFrom(onnx.helper.make_tensor_value_info(declared.name, kind, output.shape))
    return bytes(model.SerializeToString(deterministic=True))


def _refuse_other_tasks(facts: dict[str, Any]) -> None:
    """Raise ModelError if the metadata say that the file is for another task than detection."""
    task = facts.get("task")
    if isinstance(task, str) and task in OTHER_TASKS:
        raise ModelError(
            f"{OTHER_TASKS[task]} (its metadata say task: {task}); a detection needs a network that was exported for "
            "detection"
        )


def _outputs(path: Path, kind: str, needed: TaskOutputs, samples: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
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
    is_set = form.head.background != 0 and form.cell_distance >= NEAR_STRIDES
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


def _refusal(outputs: Sequence[np.ndarray], needed: TaskOutputs) -> str:
    """Say what was seen, output by output, and what would help."""
    count = needed.classes
    return (
        f"gives {_seen(outputs, needed)}. The data have {count} classes, for "
        f"which a known head gives boxes and scores in one output of {4 + count} or {5 + count} numbers for each box, "
        f"boxes (4) and scores ({count} or {count + 1}) in two outputs, or finished boxes (6); if the network has "
        "other classes, name all of them under data.classes, in its order"
    )
