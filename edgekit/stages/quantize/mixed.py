"""Accuracy-controlled mixed precision: the most sensitive layers stay in float, one more at a time, until it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import Budget
from edgekit.core.errors import ModelError
from edgekit.core.schema.quantization import MixedStep
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import refusal
from edgekit.stages.quantize.ptq import FIGURES, Right, quantize
from edgekit.targets.jobs import Quantization


@dataclass(frozen=True, eq=False)
class Mixed:
    """A network with some layers in float, and how it answers the validation split."""

    network: nn.Module
    quantization: Quantization
    right: Answered


def search(
    module: nn.Module,
    inputs: list[Tensor],
    recipe: Quantization,
    worst_first: Sequence[str],
    most: int,
    right: Right,
    baseline_right: Answered,
    budget: Budget,
) -> tuple[Mixed | None, list[MixedStep]]:
    """Keep the first 1, 2 … `most` of `worst_first` in float and stop at the first step inside the budget.

    The step that came nearest to the budget, and a row for each. One layer at least stays in int8.
    """
    layers = movable(module, worst_first)
    nearest: tuple[float, Mixed] | None = None

    def nearest_so_far() -> str:
        if nearest is None:
            return ""
        return f"{len(nearest[1].quantization.keep_float)} in float, {tasks.accuracy(nearest[1].right):.2%}"

    rows: list[MixedStep] = []
    counts = range(1, min(most, len(worst_first) - 1, len(layers)) + 1)
    called = "trying mixed precision, layers in float: {}".format
    for count in progress.each(counts, "step", called, best=nearest_so_far):
        quantization = replace(recipe, keep_float=tuple(layers[:count]))
        try:
            network = quantize(module, inputs, quantization)
        except ModelError as error:
            return nearest and nearest[1], [*rows, _unmade(quantization, str(error))]
        answers = right(network)
        drop = tasks.drop(baseline_right, answers, budget.accuracy_confidence)
        refused = refusal(drop, budget.accuracy_drop_pp)
        figures = {"validation_accuracy": tasks.accuracy(answers), **asdict(drop)}
        rows.append(_row(quantization, figures, refused))
        if nearest is None or drop.bound_pp < nearest[0]:
            nearest = drop.bound_pp, Mixed(network, quantization, answers)
        if refused is None:
            break
    return nearest and nearest[1], rows


def movable(module: nn.Module, layers: Sequence[str]) -> list[str]:
    """Those that are modules of the network by name: a bare parameter cannot be named to a converter."""
    modules = dict(module.named_modules())
    return [name for name in layers if name in modules]


def _row(quantization: Quantization, figures: dict[str, Any], refused: str | None) -> MixedStep:
    inside = {"inside_budget": refused is None, "reason": refused or ""}
    return cast("MixedStep", {"keep_float": list(quantization.keep_float), **figures, **inside})


def _unmade(quantization: Quantization, why: str) -> MixedStep:
    return _row(quantization, dict.fromkeys(("validation_accuracy", *FIGURES)), why)
