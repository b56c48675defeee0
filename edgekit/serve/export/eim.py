"""Export for Edge Impulse's clients: a program `NAME.eim` with the bundle and its runner, which they start themselves.

`edgekit.device.eim` describes the protocol.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgekit.core.errors import ConversionError
from edgekit.device import pyz
from edgekit.device.eim import parameters
from edgekit.runner import input_path
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import InputError
from edgekit.serve.export import _readme
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "Edge Impulse's clients: a program with the bundle, which they start as their own models"
OPTIONS = ()
SAMPLES = {
    "image": "a number 0xRRGGBB for each pixel, row by row",
    "audio": "sound as 16-bit numbers",
    "window": "the values of each row, one row after another",
    "vector": "the values of a row",
}
ANSWERS = {
    "classification": "`classification`: the probability of each label",
    "multi_label": "`classification`: the probability of each label, independent of the others",
    "regression": "`classification`: the values by their names",
    "detection": "`bounding_boxes`: boxes in whole pixels of the sample, with their probability as `value`",
    "embedding": "`freeform`: the embedding",
    "raw": "`freeform`: a list for each output of the model",
}


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create a program for each bundle. Raises ConversionError for one that the protocol cannot express."""
    files: dict[str, bytes] = {}
    lines, parts = [], [_head()]
    for subject in subjects:
        try:
            parameters.check(subject.manifest)
        except InputError as error:
            raise ConversionError(f"{subject.path}: {error}") from None
        files[f"{subject.name}.eim"] = _program(subject.data)
        lines.append(f"{subject.name}.eim: {_model(subject.manifest)}, {len(subject.data)} bytes of bundle")
        parts.append(_section(subject))
    files["README.md"] = "\n".join(parts).encode()
    return Export(files, lines)


def _program(bundle: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "program.eim"
        pyz.build(path, bundle=bundle)
        return path.read_bytes()


def _model(manifest: Manifest) -> str:
    features = parameters.feature_count(manifest.raw)
    return f"{parameters.MODEL_TYPES[manifest.task]} of {features} features"


def _head() -> str:
    return (
        "# Models for Edge Impulse's clients\n\n"
        "Give a client the file, for example `ImpulseRunner('NAME.eim')` in Python. The client starts it with "
        "`python3` of the PATH, which needs NumPy and the interpreter of the bundle. `./NAME.eim --print-info` prints "
        "what a client receives about the model.\n\n"
        "A program computes as an earlier `edgerun predict` with the same bundle on this device found fastest, or else "
        "with one thread.\n"
    )


def _section(subject: ExportedBundle) -> str:
    facts = subject.manifest
    answer = ANSWERS.get(facts.task) or (
        "`anomaly`, the score"
        + (", and `visual_anomaly_grid`, a map" if parameters.has_anomaly(facts) == parameters.MAP else "")
    )
    lines = [
        f"- Features: {parameters.feature_count(facts.raw)}, {SAMPLES[facts.raw.kind]}.",
        f"- Result: {answer}.",
        *_resize_lines(facts),
    ]
    return f"{_readme.title(subject)}\n" + "\n".join(lines) + "\n"


def _resize_lines(facts: Manifest) -> list[str]:
    """Say how pictures that a client resizes differ from those that the bundle resizes."""
    if facts.raw.kind != "image":
        return []
    lines = [
        "- Clients resize pictures themselves, and by another filter than the bundle. The answers to the same sample "
        "are equal, but those to the same file can differ from `edgerun predict`."
    ]
    resize = input_path.find_step(facts.raw.steps, "resize_picture") or {}
    if resize.get("fill"):
        lines.append(f"- The bundle's bars have the grey value {resize['fill']}, but those of clients are black.")
    if "share" in resize:
        lines.append(f"- The bundle cuts out {resize['share']:.0%} of the sides, but clients cut out the largest part.")
    return lines
