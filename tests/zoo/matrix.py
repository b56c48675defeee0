"""Every architecture on every target: `python -m tests.zoo.matrix` writes docs/reference/zoo.md anew.

A cell is `works` where the float file and the int8 one are inside their tolerance of the step before, else it says of
what kind the failure is, and the note under the table what, where, why, and what to do instead.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.cache_key import library_versions
from edgekit.core.config import TARGETS
from edgekit.core.errors import ModelError
from edgekit.stages.convert.checker import ADVICE
from edgekit.stages.convert.numerics import compare
from edgekit.targets import error_causes, evaluate
from edgekit.targets.locate import first_divergence
from tests.conftest import ROOT
from tests.zoo.entries import ENTRIES, Entry

PAGE = ROOT / "docs" / "reference" / "zoo.md"
LEAST_DB = {"fp32": 60.0, "int8": 8.0}
WORKS, REFUSED, NUMERICS = "works", "refused", "numerics"
LIBRARIES = ("torch", "transformers", "litert-torch", "ai-edge-quantizer", "ai-edge-litert", "openvino", "nncf", "onnx",
             "onnxscript", "onnxruntime")  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """`word` stands in the table, `note` under it; `snr_db` of each precision that was made."""

    word: str
    note: str
    snr_db: dict[str, float]


def cell(entry: Entry, target: str, home: Path) -> Cell:
    """The architecture converted and quantized for the target, each file against the step before."""
    try:
        entry.save(home / "model")
    except ModelError as error:
        return Cell(REFUSED, str(error), {})
    x = entry.samples()
    before = _flat(evaluate.torch_outputs(home / "model", x))
    found: dict[str, float] = {}
    convert = importlib.import_module(f"edgekit.targets.{target}.convert").convert
    for precision in LEAST_DB:
        out = home / f"{target}-{precision}"
        try:
            files = convert(home / "model", precision, x, out)
            outputs = _flat(evaluate.file_outputs(entry.name, target, out, files, x))
        except Exception as error:  # whatever a converter raises, it must be told by kind
            failure = error_causes.classify(error, home / "model")
            return Cell(failure.kind, f"{precision}: {failure.describe()}", found)
        found[precision] = round(compare(before, outputs).snr_db, 1)
        if found[precision] < LEAST_DB[precision]:
            where = _parted(home / "model", target, out, files, x, precision)
            asked = f"{found[precision]:.1f} dB, at least {LEAST_DB[precision]:g} dB asked"
            said = f"{precision}: {asked}: {where}; {ADVICE[precision]}"
            return Cell(NUMERICS, said, found)
        before = outputs
    return Cell(WORKS, "", found)


def _parted(model: Path, target: str, out: Path, files: object, x: np.ndarray, precision: str) -> str:
    try:
        return first_divergence.find(model, target, out, files, x, precision).message  # type: ignore[arg-type]
    except Exception as error:  # as `first_divergence.find_in_process` has it: another fault is being reported
        return f"the layer was not found ({type(error).__name__})"


def _flat(outputs: np.ndarray) -> np.ndarray:
    return outputs.reshape(len(outputs), -1)


def table(cells: dict[tuple[str, str], Cell]) -> str:
    """The page: the matrix, its notes, and the versions."""
    notes: list[str] = []
    lines = ["| architecture | what it shows | " + " | ".join(TARGETS) + " |", "|---" * (2 + len(TARGETS)) + "|"]
    for entry in ENTRIES:
        words = [_word(cells[entry.name, target], f"{entry.name}, {target}", notes) for target in TARGETS]
        lines.append(f"| {entry.name} | {entry.what} | {' | '.join(words)} |")
    versions = ", ".join(f"{name} {version}" for name, version in library_versions(LIBRARIES).items())
    return "\n".join(
        [
            "# Architectures that convert",
            "",
            "Each architecture has random weights and is converted in float and in int8.",
            "`works` is followed by two signal-to-noise ratios in dB: of the float file to PyTorch, and of int8 to",
            f"float. At least {LEAST_DB['fp32']:g} and {LEAST_DB['int8']:g} dB are required.",
            "A number in brackets leads to the note under the table: what failed, where, why, and what to do instead.",
            "`python -m tests.zoo.matrix` makes this page; `make zoo` fails where a cell is no longer true.",
            "",
            *lines,
            "",
            *(f"{number}. {note}" for number, note in enumerate(notes, 1)),
            "",
            f"Versions: {versions}.",
            "",
        ]
    )


def _word(found: Cell, what: str, notes: list[str]) -> str:
    if found.word == WORKS:
        return f"works, {found.snr_db['fp32']:.0f} · {found.snr_db['int8']:.0f}"
    notes.append(f"{what}: {found.note}")
    return f"{found.word} ({len(notes)})"


def words(page: str) -> dict[tuple[str, str], str]:
    """The first word of every cell of a page."""
    found = {}
    for line in page.splitlines():
        name, *rest = [part.strip() for part in line.strip("| ").split(" | ")]
        if name in {entry.name for entry in ENTRIES}:
            for target, said in zip(TARGETS, rest[1:], strict=True):
                found[name, target] = said.partition(",")[0].partition(" (")[0]
    return found


def main(names: Sequence[str]) -> None:
    """Of all architectures, or of those that are named, printed then instead of written."""
    cells = {}
    for entry in ENTRIES:
        for target in TARGETS:
            if names and entry.name not in names:
                continue
            with tempfile.TemporaryDirectory(prefix="edgekit-zoo-") as folder:
                cells[entry.name, target] = found = cell(entry, target, Path(folder))
            print(f"{entry.name}, {target}: {found.word} {found.snr_db} {found.note}", flush=True)
    if not names:
        PAGE.write_text(table(cells))


if __name__ == "__main__":
    main(sys.argv[1:])
