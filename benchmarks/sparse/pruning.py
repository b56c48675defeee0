"""What zeros cost: the student of a finished run, zeroed step by step, tuned as the prune stage tunes, asked on test.

    python -m benchmarks.sparse.pruning RUN CONFIG [--sparsity 0 0.5 0.7 0.8 0.9] [--steps N] [--epochs N]

RUN is the run's folder and CONFIG what it was run by. Each row starts from the student that distill kept. `as long` is
tuned as often and as long with no weight zeroed: what is between it and another row is the price of the zeros.
Differences are of pairs, for all rows answer the same test samples; a band is Tango's score interval of 95 %.

A killed one goes on from its last epoch. All of it lies in `build/sparse/NAME/`, the table in `pruning.md`.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation.results import difference
from benchmarks.training.__main__ import wilson
from edgekit import data as all_data
from edgekit.core import artifacts
from edgekit.core.config import check
from edgekit.core.errors import EdgekitError
from edgekit.core.hashing import digest, write_json
from edgekit.models.from_artifact import open_model
from edgekit.runner.files import write_atomically
from edgekit.runner.measure.bench import machine
from edgekit.stages.prune import Config, unstructured
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.evaluate import answered
from edgekit.training.fine_tuning import tuning
from edgekit.training.fit import fit
from edgekit.workbook.plan import load_plan, make_importable

ROOT = Path(__file__).resolve().parents[2]
STUDENT, CONTROL = "student", "as long"
HEAD = ("row", "zeros", "epochs", "validation", "test", "against the student, pp", "against as long, pp")


@dataclass(frozen=True)
class Row:
    """One network: whether it was right on each test sample, (n,) bool, and on what share of validation."""

    name: str
    zeros: float
    epochs: int
    validation: float
    right: np.ndarray

    @property
    def test(self) -> float:
        """Accuracy, a fraction."""
        return float(self.right.mean())


class Pruning:
    """All rows of one run."""

    def __init__(self, run: Path, config: Path, settings: list[str], folder: Path) -> None:
        plan = load_plan(config, settings)
        make_importable(plan)
        self.whole = all_data.load(plan.data)
        self.data = self.whole.withhold_test()
        self.distill = artifacts.load(run / "distill")
        self.folder, self.prune = folder, plan.stages["prune"]
        self.student, self.spec = open_model(self.distill)

    def row(self, sparsity: float, steps: int, epochs: int) -> Row:
        """The student with that share of its weights zeroed; all of them tuned for 0."""
        values = {**self.prune.model_dump(), "sparsity": sparsity or 0.5, "sparsity_steps": steps, "epochs": epochs}
        config: Config = check(Config, values, "prune")
        module = copy.deepcopy(self.student)
        name = f"{sparsity:.0%} zeros" if sparsity else CONTROL
        lesson = tuning(self.distill, module, self.spec, self.folder / "answers", config.tune_with).distillation
        zeroed: Any = unstructured.steps(module, self.spec, config, self.data.train)
        key = digest([self.distill.digest, self.data.digest, config.model_dump(), bool(sparsity)])
        for number, (aimed, keep_up) in enumerate(zeroed if sparsity else [(0.0, None)] * steps, 1):
            print(f"{name}: step {number} of {steps}, {aimed:.1%}", file=sys.stderr, flush=True)
            fit(
                module,
                self.data,
                self.spec.preprocess,
                config,
                seed=config.seed,
                device=config.device,
                threads=config.threads,
                training=config.training,
                distillation=lesson,
                resume=Checkpoint(self.folder / "trainings" / f"{key[:24]}-{number}.safetensors", f"{key}/{number}"),
                after_step=keep_up,
            )
        return self.asked(module, name, steps * epochs)

    def asked(self, module: Any, name: str, epochs: int) -> Row:
        """How right a network is."""
        splits = (self.whole.test, self.data.validation)
        right, held = (answered(module, split, self.spec.preprocess, self.data.task) for split in splits)
        zeros = unstructured.measured_sparsity(module)
        return Row(name, zeros, epochs, float(np.mean(np.asarray(held, float))), np.asarray(right, bool))


def main() -> None:
    """The table, written anew after each row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("run", type=Path, help="folder of a finished run that distilled")
    parser.add_argument("config", type=Path)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.0, 0.5, 0.7, 0.8, 0.9], help="0: as long")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="after each step")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the config")
    parser.add_argument("--out", type=Path, help="folder; none: build/sparse/NAME")
    options = parser.parse_args()
    try:
        folder = options.out or ROOT / "build" / "sparse" / options.run.name
        work = Pruning(options.run, options.config, options.set, folder)
        rows = [work.asked(work.student.eval(), STUDENT, 0)]
        for sparsity in options.sparsity:
            rows.append(work.row(sparsity, options.steps, options.epochs))
            text = _written(rows, folder, options)
        print(text)
    except EdgekitError as error:
        raise SystemExit(str(error)) from None


def _written(rows: list[Row], folder: Path, options: argparse.Namespace) -> str:
    facts = {"steps": options.steps, "epochs of a step": options.epochs, "test samples": len(rows[0].right)} | machine()
    cells = table(rows)
    lines = [" | ".join(line) for line in (HEAD, ["---"] * len(HEAD), *cells)]
    text = "\n".join([*(f"- {name}: {value}" for name, value in facts.items()), "", *(f"| {line} |" for line in lines)])
    folder.mkdir(parents=True, exist_ok=True)
    named = [dict(zip(HEAD, line, strict=True)) for line in cells]
    write_json(folder / "pruning.json", {"conditions": facts, "rows": named})
    write_atomically(folder / "pruning.md", f"{text}\n".encode())
    return text


def table(rows: list[Row]) -> list[list[str]]:
    """A line for each, as `HEAD` has them; the first is the student."""
    return [_cells(row, rows) for row in rows]


def _cells(row: Row, rows: list[Row]) -> list[str]:
    low, high = wilson(row.test, len(row.right))
    return [
        row.name,
        f"{row.zeros:.1%}",
        str(row.epochs),
        f"{row.validation:.2%}",
        f"{row.test:.2%} ({low:.2%} to {high:.2%})",
        *(_apart(row, other) for other in (rows[0], next((each for each in rows if each.name == CONTROL), row))),
    ]


def _apart(row: Row, other: Row) -> str:
    if other is row:
        return "–"
    found = difference(other.right, row.right)
    return f"{found.pp:+.2f} ({found.low_pp:+.2f} to {found.high_pp:+.2f})"


if __name__ == "__main__":
    main()
