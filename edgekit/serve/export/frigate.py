"""Export for Frigate: a model file with its decoding, the label map, and the part of the config that names them.

Frigate's detectors `onnx` and `openvino` read a detector with the model type `yolo-generic`: one input (1, 3, height,
width) with values from 0 to 1, and one output (1, 4 + classes, points) with centres and sizes in pixels of the input
and a probability for each class. Frigate then drops boxes with a probability below 0.4, suppresses overlapping boxes,
and keeps at most 20.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.errors import ConversionError
from edgekit.runner import input_path
from edgekit.serve.export import _decoded_model, _readme
from edgekit.serve.export._decoded_model import DecodedModel
from edgekit.serve.export._formats import yaml_text
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "Frigate: a model file with its decoding, the label map and the part of the config"
OPTIONS = ()
DETECTORS = {"onnx": {"type": "onnx"}, "openvino": {"type": "openvino", "device": "CPU"}}
"""The section `detectors` of Frigate's config for each target. OpenVINO runs on the CPU, because every machine has one;
users can choose a GPU or an NPU instead."""
PLACE = "/config/model_cache"
"""The folder of model files in Frigate's container."""
MIN_SCORE, MAX_BOXES = 0.4, 20
"""Frigate drops boxes with a score below `MIN_SCORE`, and keeps at most `MAX_BOXES` of the others."""
UNTRIED = (
    "prepared for Frigate 0.16 to 0.18 by its documentation: edgekit's tests run the file and read its output as "
    "Frigate does, but do not run Frigate"
)


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create a folder for each model. Raises ConversionError for a bundle that Frigate cannot use."""
    files: dict[str, bytes] = {}
    lines, parts = [], [_head()]
    for subject in subjects:
        _check(subject)
        decoded = _decoded_model.build(subject)
        _check_output(subject, decoded)
        for name, data in {
            **decoded.files,
            "labelmap.txt": _label_map(subject),
            "config.yml": _config(subject),
        }.items():
            files[f"{subject.name}/{name}"] = data
        lines.append(f"{subject.name}: yolo-generic for the {subject.manifest.target} detector. {_checked(decoded)}")
        parts.append(_section(subject, decoded))
    files["README.md"] = "\n".join(parts).encode()
    return Export(files, [*lines, UNTRIED])


def _check(subject: ExportedBundle) -> None:
    """Raise ConversionError unless Frigate's pictures are samples of this bundle and its answers are boxes."""
    facts = subject.manifest
    if facts.task != "detection":
        raise ConversionError(f"{subject.path}: its task is {facts.task}, but Frigate needs a detection")
    if facts.target not in DETECTORS:
        raise ConversionError(
            f"{subject.path}: is a {facts.target} bundle; export the onnx or openvino bundle of the same run"
        )
    height, width = facts.raw.shape[:2]
    if facts.raw.dtype != "uint8":
        raise ConversionError(f"{subject.path}: its samples are {facts.raw.dtype}, but Frigate gives pictures of bytes")
    if height != width:
        raise ConversionError(
            f"{subject.path}: its samples are {width}×{height} pixels, but Frigate cuts squares out of the video and "
            "would distort them; train and export it for square samples"
        )


def _check_output(subject: ExportedBundle, decoded: DecodedModel) -> None:
    """Raise ConversionError unless the output has the shape that Frigate reads as `yolo-generic`.

    Frigate removes axes of length one and takes the longer of the other two for the points.
    """
    rows = 4 + len(subject.manifest.labels)
    if len(decoded.shape) != 3 or decoded.shape[:2] != (1, rows) or decoded.shape[2] <= rows:
        raise ConversionError(
            f"{subject.path}: the file gives {list(decoded.shape)}, but Frigate needs [1, {rows}, points] with more "
            "points than rows; build the bundle again"
        )


def _label_map(subject: ExportedBundle) -> bytes:
    """Return a line for each label with its index, so that a label may begin with a number."""
    return "".join(f"{index} {label}\n" for index, label in enumerate(subject.manifest.labels)).encode()


def _config(subject: ExportedBundle) -> bytes:
    facts = subject.manifest
    height, width = facts.raw.shape[:2]
    place = f"{PLACE}/{subject.name}"
    return yaml_text(
        {
            "detectors": {"edgekit": DETECTORS[facts.target]},
            "model": {
                "path": f"{place}/{_decoded_model.FILES[facts.target][0]}",
                "labelmap_path": f"{place}/labelmap.txt",
                "model_type": "yolo-generic",
                "width": width,
                "height": height,
                "input_tensor": "nchw",
                "input_pixel_format": "rgb",
                "input_dtype": "float",
            },
            "objects": {"track": list(facts.labels)},
        }
    )


def _checked(decoded: DecodedModel) -> str:
    return (
        f"Its boxes for the golden samples are those of the bundle within {decoded.pixels:.2g} pixels and "
        f"{decoded.score:.2g} in their probability, on {decoded.interpreter}"
    )


def _head() -> str:
    return (
        "# Models for Frigate\n\n"
        f"Copy a model's folder to `{PLACE}` in Frigate's container, which is `model_cache` in its config folder. Then "
        "put `config.yml` into your own config, and restart Frigate. Frigate uses one model at a time.\n\n"
        f"{UNTRIED[0].upper()}{UNTRIED[1:]}.\n"
    )


def _section(subject: ExportedBundle, decoded: DecodedModel) -> str:
    facts = subject.manifest
    names = ", ".join(f"`{name}`" for name in decoded.files)
    lines = [
        f"Checked: {_checked(decoded)[0].lower()}{_checked(decoded)[1:]}.\n",
        f"- {names}: the input is float32[1, 3, {facts.raw.shape[0]}, {facts.raw.shape[1]}], red first, from 0 to 1. "
        f"The output is float32{list(decoded.shape)}: x and y of the centre, width and height in pixels of the input, "
        "and the probability of each class.",
        "- The preprocess steps and the decoding of the boxes are in the file. The file takes no other pictures.",
        f"- Frigate drops boxes with a score below {MIN_SCORE}, suppresses overlaps across all classes, gives each box "
        f"its most probable class, and keeps {MAX_BOXES} boxes in a picture.",
        *_threshold_lines(facts.boxes),
        *_resize_lines(subject),
        "- Frigate lets the interpreter choose the precision. On a GPU, an NPU and some CPUs it computes in half "
        "precision, where boxes may differ more.",
    ]
    return f"{_readme.title(subject)}\n" + "\n".join(lines) + "\n"


def _threshold_lines(options: dict[str, float] | None) -> list[str]:
    threshold = (options or {}).get("least_probability")
    if threshold is None:
        return []
    advice = f"so that boxes between the two are lost in Frigate; set `min_score: {MIN_SCORE}`"
    if threshold >= MIN_SCORE:
        advice = f"so set `min_score: {threshold:.2f}`"
    return [
        f"- The threshold of the bundle is {threshold:.2f}, {advice} in `objects: filters:` for each label (0.5 if it "
        "is not set), and a `threshold` that suits it (0.7 if it is not set)."
    ]


def _resize_lines(subject: ExportedBundle) -> list[str]:
    """Say how the bundle's own samples differ from Frigate's pictures."""
    resize = input_path.find_step(subject.manifest.raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "stretch":
        return []
    action = {"letterbox": "adds bars to pictures that are not square", "crop": "cuts pictures that are not square"}
    return [f"- The bundle itself {action[resize['fit']]}. Frigate cuts squares out of the video instead."]
