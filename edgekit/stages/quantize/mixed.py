"""Accuracy-controlled mixed precision: keep the most sensitive layers in float, as few as the budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import Budget
from edgekit.core.errors import ModelError
from edgekit.core.schema.quantization import MixedStep
from edgekit.core.tasks import SampleResults
from edgekit.core.tasks.accuracy_drop import budget_violation
from edgekit.stages.quantize.ptq import DROP_FIELDS, ScoresNetwork, quantize
from edgekit.targets.jobs import Quantization


@dataclass(frozen=True, eq=False)
class MixedNetwork:
    """A quantized network with some layers in float, and its per-sample scores on the validation split."""

    network: nn.Module
    quantization: Quantization
    scores: SampleResults


def search_float_layers(
    module: nn.Module,
    inputs: list[Tensor],
    recipe: Quantization,
    worst_first: Sequence[str],
    max_layers: int,
    score: ScoresNetwork,
    baseline_scores: SampleResults,
    budget: Budget,
) -> tuple[MixedNetwork | None, list[MixedStep]]:
    """Keep the first 1, 2, … `max_layers` of the layers in float, until a step is inside the budget.

    Parameters
    ----------
    module : torch.nn.Module
        The float network.
    inputs : list of torch.Tensor
        Calibration inputs of batch 1.
    recipe : Quantization
        How the other layers are quantized.
    worst_first : sequence of str
        Names of the layers, the most sensitive first. At least one of them stays in int8.
    max_layers : int
        Largest number of layers to keep in float.
    score : callable
        Returns the per-sample scores of a network on the validation split.
    baseline_scores : SampleResults
        The baseline's scores on the same samples.
    budget : Budget
        The limits of the run.

    Returns
    -------
    tuple
        The network with the smallest upper bound of the drop (None if none could be quantized), and a record for each
        step.
    """
    layers = nameable_layers(module, worst_first)
    best: tuple[float, MixedNetwork] | None = None

    def describe_best() -> str:
        if best is None:
            return ""
        return f"{len(best[1].quantization.keep_float)} in float, {tasks.accuracy(best[1].scores):.2%}"

    rows: list[MixedStep] = []
    counts = range(1, min(max_layers, len(worst_first) - 1, len(layers)) + 1)
    label = "trying mixed precision, layers in float: {}".format
    for count in progress.track(counts, "step", label, best=describe_best):
        quantization = replace(recipe, keep_float=tuple(layers[:count]))
        try:
            network = quantize(module, inputs, quantization)
        except ModelError as error:
            return best and best[1], [*rows, _failed_row(quantization, str(error))]
        scores = score(network)
        drop = tasks.drop(baseline_scores, scores, budget.accuracy_confidence)
        reason = budget_violation(drop, budget.accuracy_drop_pp)
        figures = {"validation_accuracy": tasks.accuracy(scores), **asdict(drop)}
        rows.append(_row(quantization, figures, reason))
        if best is None or drop.bound_pp < best[0]:
            best = drop.bound_pp, MixedNetwork(network, quantization, scores)
        if reason is None:
            break
    return best and best[1], rows


def nameable_layers(module: nn.Module, layers: Sequence[str]) -> list[str]:
    """Return the layers that are modules. A bare parameter has no name that a converter knows."""
    modules = dict(module.named_modules())
    return [name for name in layers if name in modules]


def _row(quantization: Quantization, figures: dict[str, Any], reason: str | None) -> MixedStep:
    outcome = {"inside_budget": reason is None, "reason": reason or ""}
    return cast("MixedStep", {"keep_float": list(quantization.keep_float), **figures, **outcome})


def _failed_row(quantization: Quantization, reason: str) -> MixedStep:
    return _row(quantization, dict.fromkeys(("validation_accuracy", *DROP_FIELDS)), reason)
