"""What a manifest's task asks of its outputs, its labels and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.runner.bundle.manifest_rules import check_keys, is_number, is_whole, need
from edgekit.runner.errors import BundleError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, TensorSpec


def check(manifest: Manifest) -> None:
    """BundleError where outputs, labels or options do not fit the task."""
    task, labels = manifest.task, manifest.labels
    if task == "raw":
        need(not labels, "labels", labels, "raw outputs have no labels")
    elif task == "anomaly":
        _check_reconstruction(manifest)
    elif task == "detection":
        _check_detection(manifest)
    elif task == "segmentation":
        _check_segmentation(manifest)
    else:
        [output] = _one(manifest)
        values = output.shape[-1]
        need(output.layout == "NC", "outputs[0].layout", output.layout, f"a {task} gives NC")
        need(len(labels) == values, "labels", len(labels), f"the model gives {values} values")
    need(all(map(str.isprintable, labels)), "labels", labels, "must be printable")
    if task != "classification":
        need(len(set(labels)) == len(labels), "labels", labels, f"the values of a {task} need names of their own")
        activations = {"multi_label": ("sigmoid", "none"), "detection": ("sigmoid",)}.get(task, ("none",))
        need(
            manifest.activation in activations, "activation", manifest.activation, f"{task}: {' or '.join(activations)}"
        )
        need(not manifest.golden["top1"], "golden.top1", True, f"a {task} has no first label")
    else:
        need(manifest.activation != "sigmoid", "activation", manifest.activation, "classes want softmax, or none")
    if task != "anomaly":
        need(manifest.threshold is None, "threshold", manifest.threshold, f"a {task} has none")
    if task != "detection":
        need(manifest.boxes is None, "boxes", manifest.boxes, f"a {task} has none")


def _one(manifest: Manifest) -> tuple[TensorSpec, ...]:
    """Its only output."""
    count = len(manifest.outputs)
    need(count == 1, "outputs", count, f"a model for the task {manifest.task} has one")
    return manifest.outputs


def _check_reconstruction(manifest: Manifest) -> None:
    """The output is the network's input again, in the network's own order: a picture's channels stand first."""
    wanted = manifest.input.shape[1:]
    if manifest.input.layout == "NHWC":
        wanted = (wanted[2], *wanted[:2])
    [output] = _one(manifest)
    need(output.shape[1:] == wanted, "outputs[0].shape", list(output.shape), f"needed [1, {wanted}]")
    need(len(manifest.labels) == 2, "labels", manifest.labels, "name the normal and the anomaly")
    threshold = manifest.threshold
    need(threshold is not None and is_number(threshold) and threshold >= 0, "threshold", threshold, "a number from 0")


def _check_detection(manifest: Manifest) -> None:
    """Points of grids over the picture, each with four distances and a logit for every class."""
    from edgekit.runner import boxes

    raw, shape = manifest.raw, manifest.output_shape
    need(raw.kind == "image", "raw.kind", raw.kind, "a detection takes pictures")
    inside = manifest.input.shape[1:3] if manifest.input.layout == "NHWC" else manifest.input.shape[2:4]
    need(
        inside == raw.shape[:2], "input.shape", list(inside), f"the sample has {list(raw.shape[:2])}: resize before it"
    )
    wanted = boxes.SIDES + len(manifest.labels)
    need(len(shape) == 2 and shape[1] == wanted, "outputs", list(shape), f"needed [points, {wanted}] in all")
    need(manifest.labels, "labels", manifest.labels, "name the classes")
    try:
        boxes.strides(raw.shape[:2], shape[0])
    except BundleError as error:
        raise BundleError(f"manifest.json: outputs: {error}") from None
    options = manifest.boxes
    need(isinstance(options, dict), "boxes", options, "must be an object")
    check_keys("boxes", options or {}, list(boxes.Options._fields))
    for key in ("least_probability", "overlap"):
        value = (options or {})[key]
        need(is_number(value) and 0 < value < 1, f"boxes.{key}", value, "must be a number between 0 and 1")
    most = (options or {})["most"]
    need(is_whole(most) and most > 0, "boxes.most", most, "must be a whole number above 0")


def _check_segmentation(manifest: Manifest) -> None:
    """A grid over the picture, each of its cells with a logit for every class."""
    from edgekit.runner import masks

    [output] = _one(manifest)
    raw, shape, labels = manifest.raw, output.shape[1:], manifest.labels
    need(raw.kind == "image", "raw.kind", raw.kind, "a segmentation takes pictures")
    need(1 < len(labels) <= masks.UNKNOWN, "labels", len(labels), f"name 2 to {masks.UNKNOWN} classes")
    need(len(shape) == 3 and shape[0] == len(labels), "outputs", list(shape), f"needed [{len(labels)}, rows, columns]")
    try:
        masks.cell(raw.shape[:2], shape[1:])
    except BundleError as error:
        raise BundleError(f"manifest.json: outputs: {error}") from None
