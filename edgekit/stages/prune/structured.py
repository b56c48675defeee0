"""Structured pruning: whole channels, over the dependency graph of the network (torch-pruning; Fang et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch_pruning
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.joined import joined
from edgekit.models.store import ModelSpec
from edgekit.models.text_transformer import SelfAttention
from edgekit.stages.prune import flattened
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.importance import MEASURES, accumulate_gradients, bound

flattened.install()


def steps(module: nn.Module, spec: ModelSpec, config: Config, train: Split) -> Iterator[tuple[float, None]]:
    """Prune `module` in place, step by step; yield the share of channels aimed at, and nothing to keep up.

    The caller fine-tunes between steps, so importance is measured on tuned weights. Each step removes the same
    number of channels, from every layer alike or wherever in the network they matter least; the classifier's outputs
    are never touched.
    """
    example = store.zeros(spec)
    with prunable(spec):
        pruner = torch_pruning.pruner.BasePruner(
            module,
            example,
            importance=MEASURES[config.importance](),
            global_pruning=config.scope == "global",
            pruning_ratio=config.ratio,
            max_pruning_ratio=config.max_layer_ratio,
            iterative_steps=config.steps,
            ignored_layers=fixed_layers(module, example),
            round_to=config.channel_multiple,
        )
        if config.scope == "global":
            bound(pruner, config)
        for step in range(1, config.steps + 1):
            if config.importance == "taylor":
                accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
            pruner.step()
            module.zero_grad(set_to_none=True)
            yield config.ratio * step / config.steps, None


@contextmanager
def prunable(spec: ModelSpec) -> Iterator[None]:
    """ModelError where the network's dependency graph cannot be followed, in place of what torch-pruning raises."""
    try:
        yield
    except (ValueError, RuntimeError, LookupError, AttributeError) as error:
        raise ModelError(
            f"prune: the dependency graph of {spec.called} could not be pruned "
            f"({type(error).__name__}: {_first_line(error)}); "
            "check that its forward is traceable, or raise channel_multiple or lower ratio"
        ) from error


def fixed_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """Layers that keep their outputs: those of the network, and of attention what is parted into heads."""
    return [*output_layers(module, example), *_attention(module)]


def output_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """The weighted layers that no other stands behind, on the way to an output: their channels are the outputs."""
    by_node: dict[Any, nn.Module] = {}
    weighted: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd)
    hooks = [
        layer.register_forward_hook(lambda layer, _, result: by_node.update({result.grad_fn: layer}))
        for layer in module.modules()
        if isinstance(layer, weighted)
    ]
    try:
        with torch.enable_grad():
            ways = [joined(module(example)).grad_fn]
    finally:
        for hook in hooks:
            hook.remove()
    found, seen = [], set(ways)
    while ways:
        node = ways.pop()
        if node in by_node:
            found.append(by_node[node])
            continue
        behind = {after for after, _ in getattr(node, "next_functions", ()) if after is not None} - seen
        seen |= behind
        ways += behind
    return [layer for layer in module.modules() if layer in set(found)]


def _attention(module: nn.Module) -> list[nn.Module]:
    """Layers whose outputs are parted into heads: what stays of one would no longer fill them."""
    blocks = [part for part in module.modules() if isinstance(part, SelfAttention)]
    return [layer for block in blocks for layer in block.children()]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
