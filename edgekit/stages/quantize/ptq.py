"""Post-training quantization by nncf: ranges from calibration samples, no training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partialmethod
from typing import Any, cast

import nncf
import numpy as np
import torch
from nncf.common.graph import NNCFGraph, NNCFNode
from nncf.common.logging.track_progress import track
from nncf.quantization.range_estimator import (
    AggregatorType,
    RangeEstimatorParameters,
    RangeEstimatorParametersSet,
    StatisticsCollectorParameters,
    StatisticsType,
)
from nncf.torch.function_hook.nncf_graph.nncf_graph_builder import build_nncf_graph
from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import Budget
from edgekit.core.errors import ModelError
from edgekit.core.schema.quantization import RecipeRow
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.models.eager import eager_input, single_thread
from edgekit.models.quantized import PREFIX, Quantizable, arguments, float_state, quantizable
from edgekit.targets.jobs import MINMAX, Quantization

HOOKS = "__nncf_hooks."


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer by the name of its module in the plain network, and its quantizers by theirs: of weights, of inputs."""

    name: str
    kind: str
    weights: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def quantizers(self) -> tuple[str, ...]:
        return tuple(sorted({*self.weights, *self.inputs}))


def quantized_layers(quantized: nn.Module, example: torch.Tensor) -> list[QuantizedLayer]:
    """Layers with quantized weights, in the order of execution; `example` is one network input of batch 1."""
    graph = build_nncf_graph(quantized, arguments(quantized, example))
    weights = {PREFIX + name for name in float_state(quantized)}
    found: dict[str, QuantizedLayer] = {}
    for node in graph.topological_sort():
        owner = _owner(graph, node)
        held = [parent.node_name for parent in graph.get_previous_nodes(node) if parent.node_name in weights]
        if owner is None or not held:
            continue
        name = held[0][len(PREFIX) :].removesuffix(".weight")
        for consumer in graph.get_next_nodes(node):
            before = found.get(name, QuantizedLayer(name, consumer.node_type, (), ()))
            own = tuple(sorted({*before.weights, owner}))
            inputs = tuple(sorted({*before.inputs, *_feeding(graph, consumer)} - {owner}))
            found[name] = QuantizedLayer(name, before.kind, own, inputs)
    return list(found.values())


def operations(network: Quantizable, example: torch.Tensor, modules: Collection[str]) -> list[str]:
    """nncf's names of the operations that use the weights of these modules of the plain network."""
    if not modules:
        return []
    graph = build_nncf_graph(network, arguments(network, example))
    held = {PREFIX + name for name in modules}
    return [
        node.node_name
        for node in graph.topological_sort()
        if any(parent.node_name.rpartition(".")[0] in held for parent in graph.get_previous_nodes(node))
    ]


def _feeding(graph: NNCFGraph, node: NNCFNode) -> set[str]:
    """The nearest quantizers upstream of `node`, seen through layers such as pooling that quantize nothing."""
    found, seen, ahead = set(), set(), list(graph.get_previous_nodes(node))
    while ahead:
        current = ahead.pop()
        if current.node_name in seen:
            continue
        seen.add(current.node_name)
        owner = _owner(graph, current)
        if owner is None:
            ahead += graph.get_previous_nodes(current)
        else:
            found.add(owner)
    return found


def _owner(graph: NNCFGraph, node: NNCFNode) -> str | None:
    """Name of the quantizer whose operation `node` is, by the ranges that feed it; None for any other operation."""
    parents = [parent.node_name for parent in graph.get_previous_nodes(node)]
    ranges = [name for name in parents if name.startswith(HOOKS)]
    return ranges[0].rpartition(".")[0] if ranges else None


OUTSIDE = 0.001
"""Share of a sample's values beyond either end of `percentile` ranges: the 0.1 and the 99.9 percentile."""


def _percentile(outermost: AggregatorType) -> StatisticsCollectorParameters:
    """Of each sample, and of all samples the outermost: nncf knows no percentile over all of them."""
    return StatisticsCollectorParameters(StatisticsType.QUANTILE, outermost, quantile_outlier_prob=OUTSIDE)


RANGES = {
    "minmax": RangeEstimatorParametersSet.MINMAX,
    "percentile": RangeEstimatorParameters(_percentile(AggregatorType.MIN), _percentile(AggregatorType.MAX)),
}


def spread(samples: np.ndarray, count: int) -> np.ndarray:
    """Indices of at most `count` samples, evenly over the split, so that no class is left out."""
    return np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(np.int64))


def calibration_inputs(x: np.ndarray, preprocess: list[dict[str, Any]], count: int) -> list[Tensor]:
    """Network inputs of batch 1, at most `count` of them, evenly over the calibration split `x` (n, *sample)."""
    return list(eager_input(x[spread(x, count)], preprocess).split(1))


def quantize(module: nn.Module, inputs: list[Tensor], quantization: Quantization = MINMAX) -> nn.Module:
    """A quantized copy of `module`, in eval mode; `module` itself is left as it was.

    On one thread: single samples are no faster on more, and the ranges do not depend on the number of cores. ModelError
    where nncf cannot.
    """
    network = quantizable(module).eval()
    advanced = nncf.AdvancedQuantizationParameters(
        disable_bias_correction=not quantization.bias_correction,
        activations_range_estimator_params=RANGES[quantization.ranges],
    )
    try:
        with _silence_nncf(), single_thread():
            in_float = operations(network, inputs[0], quantization.keep_float)
            quantized: nn.Module = nncf.quantize(
                network,
                nncf.Dataset(inputs, lambda x: arguments(network, x)),
                preset=nncf.QuantizationPreset.MIXED,  # as targets/openvino/convert.py, so that what is simulated ships
                subset_size=len(inputs),
                ignored_scope=nncf.IgnoredScope(names=in_float) if in_float else None,
                advanced_parameters=advanced,
            )
    except Exception as error:
        raise ModelError(f"nncf cannot quantize this network: {type(error).__name__}: {error}") from error
    return quantized.eval()


@contextmanager
def _silence_nncf() -> Iterator[None]:
    """No log lines and no progress bars; nncf has no switch for the bars."""
    begin: Any = track.__init__
    nncf.set_log_level(logging.ERROR)
    track.__init__ = partialmethod(begin, disable=True)
    try:
        yield
    finally:
        track.__init__ = begin


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
    for name in progress.each(names, "recipe", "quantizing with {}".format, best=lambda: best_so_far(made)):
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
    chosen = choose_recipe(first.recipe, below_first)
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


def choose_recipe(first: str, below_first: dict[str, Drop]) -> str:
    """The recipe with the lowest bound of its drop below the first, if that bound is negative; otherwise the first."""
    better = [name for name, drop in below_first.items() if drop.bound_pp < 0]
    return min(better, key=lambda name: below_first[name].bound_pp) if better else first


def _reason(name: str, first: str, chosen: str, drops: dict[str, Drop]) -> str:
    """Why a recipe is kept or not, in words."""
    if name == chosen == first:
        return "the first named, and no other is significantly better"
    if name == first:
        return f"{chosen} is significantly better: {_drop_text(drops[chosen])}"
    if name == chosen:
        return f"significantly better than {first}: {_drop_text(drops[name])}"
    if drops[name].bound_pp < 0:
        return f"better than {first}, but {chosen} is better still"
    if not drops[name].lost and not drops[name].gained:
        return f"no better than {first}: both are right on the same samples"
    return f"not significantly better than {first}: {_drop_text(drops[name])}"


def _drop_text(drop: Drop) -> str:
    most = f"{abs(drop.bound_pp):.2f} pp {'below' if drop.bound_pp >= 0 else 'above'} it"
    return (
        f"{drop.gained} samples gained, {drop.lost} lost of {drop.samples}; "
        f"at {100 * drop.confidence:.4g} % confidence {'maybe' if drop.bound_pp >= 0 else 'at least'} {most}"
    )
