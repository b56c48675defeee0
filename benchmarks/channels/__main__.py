"""What removed channels cost and bring: by a uniform ratio, by measured time, and the same shapes from new weights.

    python -m benchmarks.channels CONFIG --run RUN [--only PART] [--row NAME] [--set KEY=VALUE]

It starts from the student of a finished RUN, and its parts are done in turn, or one by one: `choose` times the cuts,
`train` fine-tunes each row and, with `prune.from_scratch`, trains its shape anew; `convert` makes the files of all
shapes for all targets, `time` times them in the same rounds, `page` writes the tables. Beside the student's own shapes
stand untrained ones of `--widths`, each channel count cut by a quarter and by half: they show time alone. A network
whose builder takes no `width` needs `--widths` with no number.

`share` is the speed-up over the ratio of multiply-adds, 1 where each multiply-add saved is time saved. A killed one
goes on. Everything lies in `build/channels/NAME/`. Only classifications are compared.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.ablation.results import packed
from benchmarks.channels import timing
from benchmarks.channels.page import page
from edgekit import data as all_data
from edgekit.core import artifacts
from edgekit.core.config import TrainOptions
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.core.hashing import digest, write_json
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.from_artifact import open_model
from edgekit.stages.prune import structured
from edgekit.stages.prune.candidate_times import Clock
from edgekit.stages.prune.choice import scratched
from edgekit.stages.prune.netadapt import Walk
from edgekit.stages.prune.stage import compare, prune_in_steps, short
from edgekit.stages.prune.tuner import Tuner
from edgekit.training.evaluate import answered
from edgekit.training.fine_tuning import tuning
from edgekit.training.resume import ResumeFolder
from edgekit.workbook.plan import Plan, load_plan, make_importable

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("choose", "train", "convert", "time", "page")
ROWS = ("latency", "ratio")
STUDENT = "student"
UNTIMED = {*TrainOptions.model_fields, "ratio", "from_scratch", "scratch_epochs", "tune_with"}
"""Options that change no time of a cut."""


class Rows:
    """The student of a run, and the ways in which it loses channels, in one folder."""

    def __init__(self, plan: Plan, run: Path, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.whole = all_data.load(plan.data)
        self.data = self.whole.withhold_test()
        if self.data.task != "classification":
            raise ConfigError(f"task: got {self.data.task}; this pairs right and wrong answers of classes")
        self.source = artifacts.load(run / "distill")
        self.student, self.spec = open_model(self.source)
        self.baseline, _ = open_model(self.source.ancestor("profile"))

    def walk(self, row: str) -> tuple[Tuner, Walk]:
        """What fine-tunes this row, and what chooses its cuts; both recall what was done."""
        stage: Any = self.plan.stages["prune"]
        config = stage.model_copy(update={"structured": row})
        place, timed = (
            ResumeFolder(self.folder / row, digest([options, self.source.digest, self.data.digest]))
            for options in (config.model_dump(), config.model_dump(exclude=UNTIMED))
        )
        followed = tuning(self.source, self.student, self.spec, self.folder / "answers", config.tune_with)
        tuner = Tuner(self.baseline, followed.distillation, self.spec, self.data, config, place)
        return tuner, Walk(
            self.spec, self.data, config, Clock(self.spec, self.data, config, timed), partial(short, tuner), None
        )

    def choose(self, row: str) -> None:
        """The cuts of the first step, before any fine-tuning: the shape that is timed."""
        tuner, walk = self.walk(row)
        module, _ = open_model(self.source)
        next(self._technique(row, tuner, walk)(module), None)
        if walk.rows:
            write_json(self.folder / "cuts.json", walk.rows)
        for name, network in ((STUDENT, self.student), (row, module)):
            store.save(self.folder / "networks" / name, network, self.spec)

    def train(self, row: str) -> None:
        """The last step of this way, and its shape from new weights."""
        tuner, walk = self.walk(row)
        config = tuner.config
        rows, networks = prune_in_steps(row, self._technique(row, tuner, walk), config.steps, self.student, tuner)
        self._keep(STUDENT, networks[0], 0)
        if len(networks) > 1:
            self._keep(row, networks[-1], config.epochs * (len(networks) - 1))
        if config.from_scratch and (of := scratched(rows)):
            _, compared = compare(of, rows, networks, self.source, tuner)
            self._keep(f"{row}, from new weights", networks[-1], compared["epochs"])

    def _technique(self, row: str, tuner: Tuner, walk: Walk) -> Any:
        by_ratio = partial(structured.steps, spec=self.spec, config=tuner.config, train=self.data.train)
        return walk.steps if row == "latency" else by_ratio

    def _keep(self, name: str, module: nn.Module, epochs: int) -> None:
        store.save(self.folder / "networks" / name, module, self.spec)
        steps = self.spec.preprocess

        def right(split: Split) -> Any:
            return packed(np.asarray(answered(module, split, steps)))

        validation, test = self.data.validation, self.whole.test
        facts = {"samples": [len(validation), len(test)], "epochs": epochs}
        write_json(
            self.folder / "networks" / name / "right.json",
            {**facts, "validation": right(validation), "test": right(test)},
        )


def main() -> None:
    """All parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("config", type=Path)
    parser.add_argument("--run", type=Path, required=True, help="folder of a finished run of this config")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--row", choices=ROWS, help="one way of pruning")
    parser.add_argument("--widths", type=int, nargs="*", default=[16, 64], help="of untrained ResNets that are timed")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=20, help="timed calls in a round")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the config")
    options = parser.parse_args()
    try:
        _run(options)
    except EdgekitError as error:
        raise SystemExit(str(error)) from None


def _run(options: argparse.Namespace) -> None:
    plan = load_plan(options.config, options.set)
    make_importable(plan)
    folder = ROOT / "build" / "channels" / plan.run.name
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [part for part in PARTS if options.only in (None, part)]
    if {"choose", "train", "convert"} & set(wanted):
        rows = Rows(plan, options.run, folder)
        if "convert" in wanted:
            timing.check(rows.spec, options.widths)  # before hours of training
        ways = [row for row in ROWS if options.row in (None, row)]
        for part in wanted:
            for row in ways if part in ("choose", "train") else ():
                getattr(rows, part)(row)
        if "convert" in wanted:
            timing.convert(folder, rows.spec, rows.data, options.widths, plan.run.targets)
    if "time" in wanted:
        timing.time_all(folder, options.rounds, options.calls)
    if "page" in wanted:
        print(page(folder, json.loads((folder / timing.TIMES).read_text())))


if __name__ == "__main__":
    main()
