"""The rows of an ablation: today's recipe, one change of it at a time, all together, and its curves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from edgekit.core.config import NetworkConfig, TrainOptions
from edgekit.core.errors import ConfigError
from edgekit.data import Data
from edgekit.training import augmentations

ALONE, TODAY = "labels alone", "today"
SIDES = ("width", "alpha")
"""Keyword arguments that make a network wider."""
MULTIPLE = 4
"""Of which the widths of a curve are multiples."""
LONGER = 2
EPOCHS, WIDTHS = (0.5, 2, 4), (0.5, 1.5, 2)
"""Factors of the two curves."""
STRONG = ({"kind": "cutmix", "probability": 0.5, "alpha": 1.0},)
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixup": ("mixup, alpha 0.2", {"augmentations": [{"kind": "mixup", "alpha": 0.2}]}),
    "cutmix": ("cutmix, alpha 1, half of the samples", {"augmentations": list(STRONG)}),
    "erase": ("random erasing, half of the samples", {"augmentations": [{"kind": "erase"}]}),
    "rand_augment": (
        "RandAugment, 2 operations of magnitude 5",
        {"augmentations": [{"kind": "rand_augment", "operations": 2, "magnitude": 5.0}]},
    ),
    "ema": ("moving average of the weights, decay 0.999", {"ema_decay": 0.999}),
    "no-warm-up": ("no warm-up", {"warmup_share": 0.0}),
    "longer-warm-up": ("warm-up of a quarter of the steps", {"warmup_share": 0.25}),
    "linear": ("a linear fall of the rate", {"schedule": "linear"}),
}
"""Of the student's training: what is said, and the options."""


@dataclass(frozen=True)
class Lesson:
    """A network, and how it is trained by labels."""

    network: NetworkConfig
    options: TrainOptions


@dataclass(frozen=True)
class Recipe:
    """One row: how a student is trained. Without teachers it learns by labels alone."""

    name: str
    says: str
    student: NetworkConfig
    options: TrainOptions
    teachers: tuple[Lesson, ...] = ()
    ensemble: str = "none"
    against: str = TODAY
    """The row that it is compared with."""
    alone: str = ALONE
    """The row of the same student without a teacher: where the gap begins."""

    def with_options(self, name: str, says: str, **changes: Any) -> Recipe:
        """The same with other options of the student."""
        return replace(self, name=name, says=says, options=self.options.model_copy(update=changes))


def recipes(student: NetworkConfig, options: TrainOptions, teacher: Lesson, data: Data) -> list[Recipe]:
    """All rows, in their order; those that make no sense of these samples are left out."""
    alone = Recipe(ALONE, "no teacher", student, options)
    today = replace(alone, name=TODAY, says="today's recipe", teachers=(teacher,))
    rows = [alone, today, *_of_the_student(today), *_of_the_teacher(today)]
    rows += [*_over_epochs(alone, today), *_over_widths(alone, today)]
    return [row for row in rows if _makes_sense(row, data)]


def named(rows: Sequence[Recipe], name: str) -> Recipe:
    """The row of that name."""
    return next(row for row in rows if row.name == name)


def needed(rows: Sequence[Recipe], only: Sequence[str]) -> list[Recipe]:
    """Those rows, and those without which they say nothing; all where `only` is empty. ConfigError for unknown ones."""
    if not only:
        return list(rows)
    if unknown := set(only) - {row.name for row in rows}:
        names = ", ".join(row.name for row in rows)
        raise ConfigError(f"--only: got {', '.join(sorted(unknown))}; each must be one of {names}")
    chosen = [named(rows, name) for name in only]
    wanted = {ALONE, TODAY}.union(*({row.name, row.against, row.alone} for row in chosen))
    return [row for row in rows if row.name in wanted]


def _of_the_student(today: Recipe) -> Iterator[Recipe]:
    for name, (says, changes) in CHANGES.items():
        yield today.with_options(name, says, **changes)
    epochs = LONGER * today.options.epochs
    yield today.with_options("longer", f"{LONGER} times the epochs", epochs=epochs)


def _of_the_teacher(today: Recipe) -> Iterator[Recipe]:
    [teacher] = today.teachers
    strong = replace(teacher, options=teacher.options.model_copy(update={"augmentations": list(STRONG)}))
    yield replace(today, name="teacher-cutmix", says="a teacher trained with cutmix", teachers=(strong,))
    longer = replace(teacher, options=teacher.options.model_copy(update={"epochs": LONGER * teacher.options.epochs}))
    yield replace(today, name="teacher-longer", says=f"a teacher of {LONGER} times the epochs", teachers=(longer,))
    wider = widened(today.student, 2)
    if wider is None:
        return
    sibling = replace(teacher, network=wider)
    yield replace(today, name="sibling", says=f"its own family teaches: {wider.title}", teachers=(sibling,))
    both = (teacher, sibling)
    for mean in ("logits", "probabilities"):
        yield replace(
            today, name=f"two-{mean}", says=f"today's teacher and that one, mean {mean}", teachers=both, ensemble=mean
        )
    yield replace(
        today.with_options(
            "together", "cutmix, moving average and more epochs, two teachers with cutmix",
            augmentations=list(STRONG), ema_decay=0.999, epochs=LONGER * today.options.epochs,
        ),
        teachers=(strong, replace(strong, network=wider)), ensemble="logits",
    )  # fmt: skip


def _over_epochs(alone: Recipe, today: Recipe) -> Iterator[Recipe]:
    for factor in EPOCHS:
        epochs = max(1, round(factor * today.options.epochs))
        if epochs != today.options.epochs:
            yield from _pair(alone, today, f"epochs-{epochs}", f"{epochs} epochs", {"epochs": epochs}, today.student)


def _over_widths(alone: Recipe, today: Recipe) -> Iterator[Recipe]:
    for factor in WIDTHS:
        network = widened(today.student, factor)
        if network is not None and network != today.student:
            yield from _pair(alone, today, f"width-x{factor:g}", network.title, {}, network)


def _pair(
    alone: Recipe, today: Recipe, name: str, says: str, changes: dict[str, Any], student: NetworkConfig
) -> Iterator[Recipe]:
    """A point of a curve: the lone student, and the one that is taught."""
    lone = f"{name}-alone"
    yield replace(alone.with_options(lone, f"{says}, no teacher", **changes), student=student, against=ALONE)
    yield replace(today.with_options(name, says, **changes), student=student, alone=lone)


def widened(network: NetworkConfig, factor: float) -> NetworkConfig | None:
    """The same network so many times as wide; None where nothing says how wide it is."""
    for side in SIDES:
        width = network.kwargs.get(side, _default(network, side))
        if isinstance(width, int | float) and not isinstance(width, bool):
            wider = round(factor * width / MULTIPLE) * MULTIPLE or MULTIPLE if side == "width" else factor * width
            return NetworkConfig(builder=network.builder, kwargs={**network.kwargs, side: wider})
    return None


def _default(network: NetworkConfig, side: str) -> Any:
    module, _, name = network.builder.partition(":")
    parameter = inspect.signature(getattr(import_module(module), name)).parameters.get(side)
    return parameter.default if parameter else None


def _makes_sense(recipe: Recipe, data: Data) -> bool:
    try:
        for options in (recipe.options, *(teacher.options for teacher in recipe.teachers)):
            augmentations.active(options.augmentations, data)
    except ConfigError:
        return False
    return True
