"""What can be done with a model file, by its format: the table of docs/reference/model-files.md."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.core.config import TARGETS
from edgekit.models.files import TITLES, module

NETWORK = "PyTorch module"
YES = "works"
FILES = {
    "exported": "exported PyTorch, `.pt2`",
    "keras": "Keras, `.keras` or `.h5`",
    "onnx": "ONNX, `.onnx`",
    "openvino": "OpenVINO IR, `.xml` with `.bin`",
    "tflite": "TFLite, `.tflite`",
}
TEACHER = "teacher only"
STUDENT_ONLY = "no: its student can be, because a file cannot be trained further"
COLUMNS = ("profile", "distill", "prune", "quantize (QAT)", *(f"convert: {target}" for target in TARGETS),
           "benchmark", "bundle")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One kind of model; `kind` is None for a network that code builds. `cells` has a word for each of COLUMNS."""

    kind: str | None
    name: str
    cells: dict[str, str]


def rows() -> list[Row]:
    """The table, from what the modules of the kinds offer."""
    network = Row(None, NETWORK, dict.fromkeys(COLUMNS, YES))
    return [network, *(Row(kind, FILES[kind], _cells(kind)) for kind in TITLES)]


def support() -> str:
    """The table, its reasons as notes under it."""
    notes: list[str] = []
    lines = [f"| a model that came as | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows():
        cells = [_cell(row.cells[column], notes) for column in COLUMNS]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))])


def _cells(kind: str) -> dict[str, str]:
    refused = module(kind).UNSUPPORTED_TARGETS
    targets = {f"convert: {target}": f"no: {refused[target]}" if target in refused else YES for target in TARGETS}
    rest = {"distill": TEACHER, "prune": STUDENT_ONLY, "quantize (QAT)": STUDENT_ONLY}
    return {column: {**rest, **targets}.get(column, YES) for column in COLUMNS}


def _cell(word: str, notes: list[str]) -> str:
    short, _, reason = word.partition(": ")
    if not reason:
        return short
    if reason not in notes:
        notes.append(reason)
    return f"{short} ({notes.index(reason) + 1})"
