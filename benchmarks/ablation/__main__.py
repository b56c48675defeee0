"""What each change of a distillation is worth: one at a time against today's recipe, and curves of two of them.

    python -m benchmarks.ablation CONFIG [--epochs N] [--only NAME,…] [--candidate N] [--loss NAME] [--set KEY=VALUE]

Today's recipe is the config's: its student, or one of its candidates, taught by its first teacher that is trained, or
by its baseline, trained anew. Each row trains one student from the same initial weights on the same order of samples,
and its teachers, each of them once. Accuracy is that of the weights that validation chose. On test each row stands
with Wilson's interval. Its difference to today's has the interval of pairs, for all answer the same test samples.
Choose a recipe by validation, for the best of many on test is lucky there; one interval in twenty excludes 0 by chance.

`gap closed` is the share of the way from today's lone student to today's teacher; `of its own gap` that from its own
lone student to its own teacher. CPU minutes are the student's alone, of the last attempt.

A killed one goes on: trainings from their last epoch, finished rows are recalled. Everything lies in
`build/ablation/NAME/`: `ablation.md`, `ablation.json`, and what they are made of. Only classifications are compared.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.ablation import results
from benchmarks.ablation.recipes import Lesson, Recipe, needed, recipes
from benchmarks.ablation.results import Result
from edgekit import data as all_data
from edgekit.core.config import NetworkConfig, TrainOptions
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.core.hashing import digest
from edgekit.data import Data
from edgekit.models.from_artifact import spec_for
from edgekit.runner.measure.bench import machine
from edgekit.training import losses
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.evaluate import answered, evaluate
from edgekit.training.objective import Distillation
from edgekit.training.side_by_side import Training
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.training_key import training_key
from edgekit.workbook.plan import Plan, load_plan, make_importable

ROOT = Path(__file__).resolve().parents[2]
MOST_EPOCHS = 10_000
"""Of a training."""


class Ablation:
    """All trainings of one config, each under a key of all that it depends on, in one folder."""

    def __init__(self, plan: Plan, folder: Path, loss: losses.LossOptions) -> None:
        self.plan, self.folder, self.loss = plan, folder, loss
        self.whole = all_data.load(plan.data)
        self.data = self.whole.withhold_test()
        if self.data.task != "classification":
            raise ConfigError(f"task: got {self.data.task}; an ablation pairs right and wrong answers of classes")
        stage: Any = plan.stages["distill"]
        self.how: dict[str, Any] = {name: getattr(stage, name) for name in ("seed", "device", "threads", "training")}

    def key(self, network: NetworkConfig, options: TrainOptions) -> str:
        """Of a training by labels."""
        spec = spec_for(self.data, network.builder, network.kwargs, self.plan.run.preprocess)
        return training_key(spec, options, self.data, **self.how)

    def row_key(self, recipe: Recipe) -> str:
        """Of a row, before anything is trained."""
        taught = [self.key(each.network, each.options) for each in recipe.teachers]
        lesson = [taught, recipe.ensemble, self.loss.model_dump()] if taught else []
        return digest([self.key(recipe.student, recipe.options), *lesson])

    def result(self, recipe: Recipe) -> Result:
        """Recall the row, or train what it needs."""
        key = self.row_key(recipe)
        if earlier := Result.read(self.folder / "rows", key):
            return Result(**{**vars(earlier), "name": recipe.name, "says": recipe.says})
        teacher = self._teacher(recipe)
        began = _cpu_s()
        student = self._trained(recipe.student, recipe.options, key, teacher)
        steps, test = self.plan.run.preprocess, self.whole.test
        right: Any = answered(student, test, steps)
        found = Result(
            key=key,
            name=recipe.name,
            says=recipe.says,
            epochs=recipe.options.epochs,
            parameters=sum(parameter.numel() for parameter in student.parameters()),
            validation=evaluate(student, self.data.validation, steps),
            right=results.packed(right),
            samples=len(test),
            teacher=evaluate(teacher, test, steps) if teacher else None,
            cpu_s=_cpu_s() - began,
        )
        found.write(self.folder / "rows")
        return found

    def _teacher(self, recipe: Recipe) -> nn.Module | None:
        made = [self._trained(each.network, each.options, self.key(each.network, each.options)) for each in
                recipe.teachers]  # fmt: skip
        if len(made) < 2:
            return made[0] if made else None
        steps = self.plan.run.preprocess
        networks = [each.network for each in recipe.teachers]
        specs = [spec_for(self.data, each.builder, each.kwargs, steps) for each in networks]
        return Ensemble(made, specs, recipe.ensemble).eval()

    def _trained(
        self, network: NetworkConfig, options: TrainOptions, key: str, teacher: nn.Module | None = None
    ) -> nn.Module:
        spec = spec_for(self.data, network.builder, network.kwargs, self.plan.run.preprocess)
        lesson = Distillation(teacher, self.loss, self.folder / "answers") if teacher else None
        place = Checkpoint(self.folder / "trainings" / f"{key[:32]}.safetensors", key)
        print(f"  {network.title}, {options.epochs} epochs", file=sys.stderr)
        return Training(network.title, place, spec, options, distillation=lesson, **self.how).fit(self.data)[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """The table, written anew after each row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("config", type=Path)
    parser.add_argument("--epochs", type=int, default=0, help="of students and teachers; 0: the config's")
    parser.add_argument("--only", default="", metavar="NAME,…", help="rows, and those that they are compared with")
    parser.add_argument("--candidate", type=int, default=1, metavar="N", help="which of distill.candidates is taught")
    parser.add_argument("--loss", default="", help="which of distill.losses; none: the first")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the config")
    parser.add_argument("--out", type=Path, help="folder; none: build/ablation/NAME")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except EdgekitError as error:
        raise SystemExit(str(error)) from None


def _run(options: argparse.Namespace) -> None:
    if not 0 <= options.epochs <= MOST_EPOCHS:
        raise ConfigError(f"--epochs: got {options.epochs}; write 1 to {MOST_EPOCHS:,}, or 0 for the config's")
    plan = load_plan(options.config, options.set)
    make_importable(plan)
    if "distill" not in plan.stages:
        raise ConfigError(f"{options.config}: has no distill section; name a student, or candidates")
    folder = options.out or ROOT / "build" / "ablation" / plan.run.name
    work = Ablation(plan, folder, _loss(plan, options.loss))
    rows = needed(_recipes(plan, work.data, options), list(filter(None, options.only.split(","))))
    if options.list:
        print("\n".join(f"{row.name}: {row.says}" for row in rows))
        return
    found: dict[str, Result] = {}
    facts = {"config": str(options.config), "settings": " ".join(options.set), "loss": work.loss.loss, **machine()}
    for place, row in enumerate(rows, 1):
        print(f"{place} of {len(rows)}: {row.name}", file=sys.stderr)
        found[row.name] = work.result(row)
        text = results.write(found, rows, folder, {**facts, "test samples": found[row.name].samples})
    print(text)


def _recipes(plan: Plan, data: Data, options: argparse.Namespace) -> list[Recipe]:
    stage: Any = plan.stages["distill"]
    places = [stage.student] if stage.student else stage.candidates
    if not 1 <= options.candidate <= len(places):
        raise ConfigError(f"--candidate: got {options.candidate}; the config has {len(places)}")
    student = places[options.candidate - 1]
    own = _options(stage, options.epochs)
    for teacher in stage.teachers:
        if teacher.builder:
            network = NetworkConfig(builder=teacher.builder, kwargs=teacher.kwargs)
            lesson = Lesson(network, _options(teacher.training or stage, options.epochs))
            return recipes(student, own, lesson, data)
    model = plan.run.model
    if model.builder is None:
        raise ConfigError("distill.teachers: all are files; an ablation trains its teachers: name one with a builder")
    lesson = Lesson(NetworkConfig(builder=model.builder, kwargs=model.kwargs), _options(plan.stages["profile"],
                                                                                        options.epochs))  # fmt: skip
    return recipes(student, own, lesson, data)


def _options(given: Any, epochs: int) -> TrainOptions:
    """The options of a stage that are a training's, with as many epochs as were asked for."""
    values = {name: getattr(given, name) for name in TrainOptions.model_fields}
    return TrainOptions.model_validate({**values, **({"epochs": epochs} if epochs else {})})


def _loss(plan: Plan, name: str) -> losses.LossOptions:
    stage: Any = plan.stages["distill"]
    there = {each.loss: each for each in stage.loss_options()}
    if name and name not in there:
        raise ConfigError(f"--loss: got {name!r}; distill.losses names {', '.join(there)}")
    found = there[name] if name else next(iter(there.values()))
    if losses.needs_features(found):
        raise ConfigError(f"--loss: got {found.loss}, and several teachers have no feature maps in common")
    return found


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
