"""Post-training quantization with nncf: value ranges from calibration samples, without training."""

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
from edgekit.core.tasks import SampleResults
from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.models.eager import eager_input, single_thread
from edgekit.models.quantized import PREFIX, Quantizable, arguments, float_state, quantizable
from edgekit.targets.jobs import MINMAX, Quantization

HOOKS = "__nncf_hooks."


@dataclass(frozen=True)
class QuantizedLayer:
    """A quantized layer: the name of its module in the float network, and the names of its quantizers."""

    name: str
    kind: str
    weights: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def quantizers(self) -> tuple[str, ...]:
        return tuple(sorted({*self.weights, *self.inputs}))


def quantized_layers(quantized: nn.Module, example: torch.Tensor) -> list[QuantizedLayer]:
    """Return the layers with quantized weights in the order of execution. `example` is a network input of batch 1."""
    graph = build_nncf_graph(quantized, arguments(quantized, example))
    weights = {PREFIX + name for name in float_state(quantized)}
    layers: dict[str, QuantizedLayer] = {}
    for node in graph.topological_sort():
        quantizer = _quantizer_name(graph, node)
        weight_names = [parent.node_name for parent in graph.get_previous_nodes(node) if parent.node_name in weights]
        if quantizer is None or not weight_names:
            continue
        name = weight_names[0][len(PREFIX) :].removesuffix(".weight")
        for consumer in graph.get_next_nodes(node):
            layer = layers.get(name, QuantizedLayer(name, consumer.node_type, (), ()))
            weight_quantizers = tuple(sorted({*layer.weights, quantizer}))
            inputs = tuple(sorted({*layer.inputs, *_input_quantizers(graph, consumer)} - {quantizer}))
            layers[name] = QuantizedLayer(name, layer.kind, weight_quantizers, inputs)
    return list(layers.values())


def operation_names(network: Quantizable, example: torch.Tensor, modules: Collection[str]) -> list[str]:
    """Return nncf's names of the operations that use the weights of these modules of the float network."""
    if not modules:
        return []
    graph = build_nncf_graph(network, arguments(network, example))
    prefixed_names = {PREFIX + name for name in modules}
    return [
        node.node_name
        for node in graph.topological_sort()
        if any(parent.node_name.rpartition(".")[0] in prefixed_names for parent in graph.get_previous_nodes(node))
    ]


def _input_quantizers(graph: NNCFGraph, node: NNCFNode) -> set[str]:
    """Return the nearest quantizers before `node`, looking past layers without quantizers, such as pooling."""
    quantizers, seen, pending = set(), set(), list(graph.get_previous_nodes(node))
    while pending:
        current = pending.pop()
        if current.node_name in seen:
            continue
        seen.add(current.node_name)
        quantizer = _quantizer_name(graph, current)
        if quantizer is None:
            pending += graph.get_previous_nodes(current)
        else:
            quantizers.add(quantizer)
    return quantizers


def _quantizer_name(graph: NNCFGraph, node: NNCFNode) -> str | None:
    """Return the name of the quantizer that `node` is part of, or None.

    The name is taken from the quantizer's range parameters, which are inputs of `node`.
    """
    parents = [parent.node_name for parent in graph.get_previous_nodes(node)]
    ranges = [name for name in parents if name.startswith(HOOKS)]
    return ranges[0].rpartition(".")[0] if ranges else None


OUTLIER_FRACTION = 0.001
"""Fraction of a sample's values that lies outside a `percentile` range on each side. The range of a sample therefore
reaches from the 0.1 to the 99.9 percentile."""


def _percentile(outermost: AggregatorType) -> StatisticsCollectorParameters:
    """Return nncf's parameters for one end of a range: the `outermost` of the percentiles of the single samples.

    nncf cannot compute a percentile over the values of all samples together.
    """
    return StatisticsCollectorParameters(StatisticsType.QUANTILE, outermost, quantile_outlier_prob=OUTLIER_FRACTION)


RANGES = {
    "minmax": RangeEstimatorParametersSet.MINMAX,
    "percentile": RangeEstimatorParameters(_percentile(AggregatorType.MIN), _percentile(AggregatorType.MAX)),
}


def evenly_spaced(samples: np.ndarray, count: int) -> np.ndarray:
    """Return indices of at most `count` samples, evenly spaced over the split so that no class is left out."""
    return np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(np.int64))


def calibration_inputs(x: np.ndarray, preprocess: list[dict[str, Any]], count: int) -> list[Tensor]:
    """Return at most `count` network inputs of batch 1, evenly spaced over the calibration split `x` (n, *sample)."""
    return list(eager_input(x[evenly_spaced(x, count)], preprocess).split(1))


def quantize(module: nn.Module, inputs: list[Tensor], quantization: Quantization = MINMAX) -> nn.Module:
    """Return a quantized copy of `module` in eval mode.

    Calibration runs on one thread, so that the ranges do not depend on the number of cores. Several threads would not
    be faster, because samples are processed one at a time. Raises ModelError if nncf fails.
    """
    network = quantizable(module).eval()
    advanced = nncf.AdvancedQuantizationParameters(
        disable_bias_correction=not quantization.bias_correction,
        activations_range_estimator_params=RANGES[quantization.ranges],
    )
    try:
        with _silence_nncf(), single_thread():
            in_float = operation_names(network, inputs[0], quantization.keep_float)
            quantized: nn.Module = nncf.quantize(
                network,
                nncf.Dataset(inputs, lambda x: arguments(network, x)),
                # the same preset as in targets/openvino/convert.py, so that the shipped file matches this simulation
                preset=nncf.QuantizationPreset.MIXED,
                subset_size=len(inputs),
                ignored_scope=nncf.IgnoredScope(names=in_float) if in_float else None,
                advanced_parameters=advanced,
            )
    except Exception as error:
        raise ModelError(f"nncf cannot quantize this network: {type(error).__name__}: {error}") from error
    return quantized.eval()


@contextmanager
def _silence_nncf() -> Iterator[None]:
    """Suppress nncf's log lines and progress bars. nncf has no option for the bars."""
    original_init: Any = track.__init__
    nncf.set_log_level(logging.ERROR)
    track.__init__ = partialmethod(original_init, disable=True)
    try:
        yield
    finally:
        track.__init__ = original_init


DROP_FIELDS = tuple(field.name for field in fields(Drop))

ScoresNetwork = Callable[[nn.Module], SampleResults]
"""Returns the per-sample scores of a network on the validation split."""

RECIPES = {
    "minmax": Quantization("minmax", bias_correction=False),
    "percentile": Quantization("percentile", bias_correction=False),
    "minmax_bias": Quantization("minmax", bias_correction=True),
    "percentile_bias": Quantization("percentile", bias_correction=True),
}


@dataclass(frozen=True, eq=False)
class RecipeResult:
    """A network quantized by a recipe, and its per-sample scores on the validation split."""

    recipe: str
    network: nn.Module
    scores: SampleResults

    @property
    def quantization(self) -> Quantization:
        return RECIPES[self.recipe]


def compare_recipes(
    module: nn.Module,
    inputs: list[Tensor],
    recipes: Sequence[str],
    score: ScoresNetwork,
    baseline_scores: SampleResults,
    budget: Budget,
) -> tuple[RecipeResult, list[RecipeRow]]:
    """Quantize with every recipe and select the first one, unless another is significantly better.

    Each of the k other recipes is compared with the first at confidence 1 - (1 - c) / k (Bonferroni correction), where
    c is the confidence of the budget. The probability that any recipe is selected by chance is therefore at most 1 - c.

    Returns the selected recipe, and a record for each recipe. Raises ModelError if nncf fails with all recipes.
    """
    results: list[RecipeResult] = []
    failures: dict[str, str] = {}
    for name in progress.track(recipes, "recipe", "quantizing with {}".format, best=lambda: best_so_far(results)):
        try:
            network = quantize(module, inputs, RECIPES[name])
            results.append(RecipeResult(name, network, score(network)))
        except ModelError as error:
            failures[name] = str(error)
    if not results:
        raise ModelError(f"quantize.recipes: none of {', '.join(recipes)} can be used; {failures[recipes[0]]}")
    first, others = results[0], results[1:]
    confidence = 1 - (1 - budget.accuracy_confidence) / max(1, len(others))
    below_first = {each.recipe: tasks.drop(first.scores, each.scores, confidence) for each in others}
    below_baseline = {
        each.recipe: tasks.drop(baseline_scores, each.scores, budget.accuracy_confidence) for each in results
    }
    accuracy = {each.recipe: tasks.accuracy(each.scores) for each in results}
    chosen = choose_recipe(first.recipe, below_first)
    rows = [
        {
            "recipe": name,
            "ranges": RECIPES[name].ranges,
            "bias_correction": RECIPES[name].bias_correction,
            "validation_accuracy": accuracy.get(name),
            **(dict.fromkeys(DROP_FIELDS) if name in failures else asdict(below_baseline[name])),
            "below_first": asdict(below_first[name]) if name in below_first else None,
            "kept": name == chosen,
            "reason": failures.get(name) or _explain_choice(name, first.recipe, chosen, below_first),
        }
        for name in recipes
    ]
    return next(each for each in results if each.recipe == chosen), [cast("RecipeRow", row) for row in rows]


def best_so_far(results: Sequence[RecipeResult]) -> str:
    """Describe the most accurate recipe for the progress display; `choose_recipe` decides more strictly."""
    best = max(((tasks.accuracy(each.scores), each.recipe) for each in results), default=None)
    return f"{best[1]}, {best[0]:.2%}" if best else ""


def choose_recipe(first: str, below_first: dict[str, Drop]) -> str:
    """Return the recipe whose gain over the first recipe has the largest lower bound.

    If no gain is significant, the first recipe is returned.
    """
    better = [name for name, drop in below_first.items() if drop.bound_pp < 0]
    return min(better, key=lambda name: below_first[name].bound_pp) if better else first


def _explain_choice(name: str, first: str, chosen: str, drops: dict[str, Drop]) -> str:
    """Explain why a recipe was selected or not."""
    if name == chosen == first:
        return "the first recipe, and no other is significantly better"
    if name == first:
        return f"{chosen} is significantly better: {_describe_drop(first, drops[chosen])}"
    if name == chosen:
        return f"significantly better than {first}: {_describe_drop(first, drops[name])}"
    if drops[name].bound_pp < 0:
        return f"better than {first}, but {chosen} is better still"
    if not drops[name].lost and not drops[name].gained:
        return f"no better than {first}: both are correct on the same samples"
    return f"not significantly better than {first}: {_describe_drop(first, drops[name])}"


def _describe_drop(first: str, drop: Drop) -> str:
    side = "at most" if drop.bound_pp >= 0 else "at least"
    bound = f"{side} {abs(drop.bound_pp):.2f} pp {'below' if drop.bound_pp >= 0 else 'above'} {first}"
    return (
        f"{drop.gained} samples gained, {drop.lost} lost of {drop.samples}; "
        f"at {100 * drop.confidence:.4g} % confidence {bound}"
    )
