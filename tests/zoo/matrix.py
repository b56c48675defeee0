"""Every architecture on every target, and through the whole pipeline: it writes docs/reference/zoo.md.

`python -m tests.zoo.matrix [--column COLUMN] [NAME …]` makes the cells of these columns and architectures anew, by
default all, and leaves the others of the page as they are.

A target's cell is `works` where the float file and the int8 one are inside their tolerance of the step before, else it
says of what kind the failure is, and the note under the table what, where, why, and what to do instead. The last
column says what became of the network in all stages (`pipeline.py`).
"""

from __future__ import annotations

import argparse
import importlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.cache_key import library_versions
from edgekit.core.config import TARGETS
from edgekit.core.errors import ModelError
from edgekit.stages.convert.checker import Divergence, advise
from edgekit.stages.convert.numerics import compare
from edgekit.targets import error_causes, evaluate
from edgekit.targets.locate import first_divergence
from tests.conftest import ROOT
from tests.zoo import pipeline
from tests.zoo.entries import ENTRIES, Entry

PAGE = ROOT / "docs" / "reference" / "zoo.md"
LEAST_DB = {"fp32": 60.0, "int8": 8.0}
WORKS, REFUSED, NUMERICS = "works", "refused", "numerics"
PIPELINE, VERSIONS = "pipeline", "Versions: "
NUMBERED = re.compile(r"(.*?)(?: \((\d+)\))?")
COLUMNS = (*TARGETS, PIPELINE)
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
        except Exception as error:  # whatever a converter raises must have a kind
            failure = error_causes.classify(error, home / "model")
            return Cell(failure.kind, f"{precision}: {failure.describe()}", found)
        found[precision] = round(compare(before, outputs).snr_db, 1)
        if found[precision] < LEAST_DB[precision]:
            where = _parted(home / "model", target, out, files, x, precision)
            instead = advise(Divergence(home / "model", precision, before, outputs, where.layer))
            figure = f"{found[precision]:.1f} dB, at least {LEAST_DB[precision]:g} dB required"
            reason = f"{precision}: {figure}: {where.message}; {instead}"
            return Cell(NUMERICS, reason, found)
        before = outputs
    return Cell(WORKS, "", found)


def _parted(
    model: Path, target: str, out: Path, files: object, x: np.ndarray, precision: str
) -> first_divergence.LocatedLayer:
    try:
        return first_divergence.find(model, target, out, files, x, precision)  # type: ignore[arg-type]
    except Exception as error:  # as `first_divergence.find_in_process` has it: another fault is being reported
        return first_divergence.LocatedLayer(f"the layer was not found ({type(error).__name__})")


def _flat(outputs: np.ndarray) -> np.ndarray:
    return outputs.reshape(len(outputs), -1)


@dataclass(frozen=True)
class Shown:
    """A cell as it stands on the page, without the number of its note."""

    text: str
    note: str = ""


def shown(entry: Entry, column: str, home: Path) -> Shown:
    """What stands in this column for this architecture."""
    if column == PIPELINE:
        ended = pipeline.in_process(entry, home)
        return Shown(ended.word, ended.note)
    made = cell(entry, column, home)
    numbers = f", {made.snr_db['fp32']:.0f} · {made.snr_db['int8']:.0f}" if made.word == WORKS else ""
    return Shown(f"{made.word}{numbers}", made.note)


def table(cells: dict[tuple[str, str], Shown], versions: str) -> str:
    """The page: the matrix, its notes, and the versions."""
    notes: list[str] = []
    lines = ["| architecture | what it shows | " + " | ".join(COLUMNS) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for entry in ENTRIES:
        texts = [_numbered(cells[entry.name, column], f"{entry.name}, {column}", notes) for column in COLUMNS]
        lines.append(f"| {entry.name} | {entry.what} | {' | '.join(texts)} |")
    return "\n".join(
        [
            "# Architectures that convert",
            "",
            "Each architecture has random weights and is converted in float and in int8.",
            "`works` is followed by two signal-to-noise ratios in dB: of the float file relative to PyTorch, and of",
            f"int8 relative to float. At least {LEAST_DB['fp32']:g} and {LEAST_DB['int8']:g} dB are required.",
            "A number in brackets refers to a note under the table: what failed, where, why, and what to do instead.",
            "",
            "For the column `pipeline` the network went through every stage: it was trained for one epoch on",
            f"{pipeline.SAMPLES['train']} samples, distilled with itself as the teacher, pruned with the default",
            "`prune.ratio`, quantized with and without training, converted in float and int8, measured and bundled.",
            "The cell says how many of the three targets have a bundle that passed its self-test, and what share of",
            "the weights pruning removed. After so little training, int8 only has to reach",
            f"{pipeline.LEAST_INT8_DB:g} dB relative to float.",
            "",
            "`python -m tests.zoo.matrix` writes this page, and `make zoo` fails if a cell is no longer true.",
            "",
            *lines,
            "",
            *(f"{number}. {note}" for number, note in enumerate(notes, 1)),
            "",
            f"{VERSIONS}{versions}.",
            "",
        ]
    )


def _numbered(shown_cell: Shown, what: str, notes: list[str]) -> str:
    if not shown_cell.note:
        return shown_cell.text
    notes.append(f"{what}: {shown_cell.note}")
    return f"{shown_cell.text} ({len(notes)})"


def read(page: str) -> dict[tuple[str, str], Shown]:
    """Every cell of a page, with its note."""
    notes = dict(re.findall(r"^(\d+)\. (.+)$", page, re.MULTILINE))
    found = {}
    for line in page.splitlines():
        name, *rest = [part.strip() for part in line.strip("| ").split(" | ")]
        if name in {entry.name for entry in ENTRIES}:
            for column, text in zip(COLUMNS, rest[1:], strict=False):
                plain, number = NUMBERED.fullmatch(text).groups()  # type: ignore[union-attr]
                note = notes[number].removeprefix(f"{name}, {column}: ") if number else ""
                found[name, column] = Shown(plain, note)
    return found


def versions_now() -> str:
    """The versions that cells depend on, as the page says them."""
    return ", ".join(f"{name} {version}" for name, version in library_versions(LIBRARIES).items())


def main() -> None:
    """Make the given cells anew; each is printed, and stands on the page as soon as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--column", choices=COLUMNS, action="append")
    options = parser.parse_args()
    for entry in ENTRIES:
        for column in options.column or COLUMNS:
            if options.names and entry.name not in options.names:
                continue
            with tempfile.TemporaryDirectory(prefix="edgekit-zoo-") as folder:
                made = shown(entry, column, Path(folder))
            print(f"{entry.name}, {column}: {made.text}  {made.note}", flush=True)
            cells = {(each.name, place): Shown("not yet known") for each in ENTRIES for place in COLUMNS}
            page = PAGE.read_text()
            PAGE.write_text(table({**cells, **read(page), (entry.name, column): made}, versions_now()))


if __name__ == "__main__":
    main()
