"""Post-training recipes in competition: the first named stays unless another is surely better on the same samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import cast

from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import Budget
from edgekit.core.errors import ModelError
from edgekit.core.schema.quantization import RecipeRow
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.stages.quantize.ptq import quantize
from edgekit.targets.jobs import Quantization

FIGURES = tuple(field.name for field in fields(Drop))

Right = Callable[[nn.Module], Answered]
"""What a network answers of the validation split."""

RECIPES = {
    "minmax": Quantization("minmax", bias_correction=False),
    "percentile": Quantization("percentile", bias_correction=False),
    "minmax_bias": Quantization("minmax", bias_correction=True),
    "percentile_bias": Quantization("percentile", bias_correction=True),
}


@dataclass(frozen=True, eq=False)
class RecipeResult:
    """What a recipe gave, and how it answers the validation split."""

    recipe: str
    network: nn.Module
    right: Answered

    @property
    def quantization(self) -> Quantization:
        return RECIPES[self.recipe]


def compete(
    module: nn.Module,
    inputs: list[Tensor],
    names: Sequence[str],
    right: Right,
    baseline_right: Answered,
    budget: Budget,
) -> tuple[RecipeResult, list[RecipeRow]]:
    """The recipe that is kept, and a row for each; ModelError where nncf can make none of them.

    Of k that challenge the first each is compared at confidence 1 - (1 - c) / k (Bonferroni), so that with confidence c
    none is taken for better by chance.
    """
    made: list[RecipeResult] = []
    failed: dict[str, str] = {}
    for name in progress.each(names, "recipe", str, best=lambda: best_so_far(made)):
        try:
            network = quantize(module, inputs, RECIPES[name])
            made.append(RecipeResult(name, network, right(network)))
        except ModelError as error:
            failed[name] = str(error)
    if not made:
        raise ModelError(f"quantize.recipes: none of {', '.join(names)} can be made; {failed[names[0]]}")
    first, others = made[0], made[1:]
    each_sure = 1 - (1 - budget.accuracy_confidence) / max(1, len(others))
    below_first = {each.recipe: tasks.drop(first.right, each.right, each_sure) for each in others}
    below_baseline = {each.recipe: tasks.drop(baseline_right, each.right, budget.accuracy_confidence) for each in made}
    accuracy = {each.recipe: tasks.accuracy(each.right) for each in made}
    chosen = choose(first.recipe, below_first)
    rows = [
        {
            "recipe": name,
            "ranges": RECIPES[name].ranges,
            "bias_correction": RECIPES[name].bias_correction,
            "validation_accuracy": accuracy.get(name),
            **(dict.fromkeys(FIGURES) if name in failed else asdict(below_baseline[name])),
            "below_first": asdict(below_first[name]) if name in below_first else None,
            "kept": name == chosen,
            "reason": failed.get(name) or _reason(name, first.recipe, chosen, below_first),
        }
        for name in names
    ]
    return next(each for each in made if each.recipe == chosen), [cast("RecipeRow", row) for row in rows]


def best_so_far(made: Sequence[RecipeResult]) -> str:
    """The most accurate recipe, for progress; `choose` asks for more than that."""
    best = max(((tasks.accuracy(each.right), each.recipe) for each in made), default=None)
    return f"{best[1]}, {best[0]:.2%}" if best else ""


def choose(first: str, below_first: dict[str, Drop]) -> str:
    """The recipe whose drop below the first is surely the least, if that is surely less than none; else the first."""
    better = [name for name, drop in below_first.items() if drop.bound_pp < 0]
    return min(better, key=lambda name: below_first[name].bound_pp) if better else first


def _reason(name: str, first: str, chosen: str, drops: dict[str, Drop]) -> str:
    """Why a recipe is kept or not, in words."""
    if name == chosen == first:
        return "the first named, and no other is surely better"
    if name == first:
        return f"{chosen} is surely better: {_drop_text(drops[chosen])}"
    if name == chosen:
        return f"surely better than {first}: {_drop_text(drops[name])}"
    if drops[name].bound_pp < 0:
        return f"better than {first}, but {chosen} is more surely so"
    if not drops[name].lost and not drops[name].gained:
        return f"no better than {first}: both are right on the same samples"
    return f"not surely better than {first}: {_drop_text(drops[name])}"


def _drop_text(drop: Drop) -> str:
    most = f"{abs(drop.bound_pp):.2f} pp {'below' if drop.bound_pp >= 0 else 'above'} it"
    return (
        f"{drop.gained} samples gained, {drop.lost} lost of {drop.samples}; "
        f"at {100 * drop.confidence:.4g} % confidence {'maybe' if drop.bound_pp >= 0 else 'at least'} {most}"
    )
