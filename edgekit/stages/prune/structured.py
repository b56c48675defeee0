"""Structured pruning: whole channels, over the dependency graph of the network (torch-pruning; Fang et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch_pruning
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.store import ModelSpec
from edgekit.models.text_transformer import SelfAttention
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.importance import MEASURES, accumulate_gradients, bound


def steps(module: nn.Module, spec: ModelSpec, config: Config, train: Split) -> Iterator[tuple[float, None]]:
    """Prune `module` in place, step by step; yield the share of channels aimed at, and nothing to keep up.

    The caller fine-tunes between steps, so importance is measured on tuned weights. Each step removes the same
    number of channels, from every layer alike or wherever in the network they matter least; the classifier's outputs
    are never touched.
    """
    example = store.zeros(spec)
    try:
        pruner = torch_pruning.pruner.BasePruner(
            module,
            example,
            importance=MEASURES[config.importance](),
            global_pruning=config.scope == "global",
            pruning_ratio=config.ratio,
            max_pruning_ratio=config.max_layer_ratio,
            iterative_steps=config.steps,
            ignored_layers=[*_outputs(module, example), *_attention(module)],
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
    except (ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"prune: the dependency graph of {spec.called} could not be pruned "
            f"({type(error).__name__}: {_first_line(error)}); "
            "check that its forward is traceable, or raise channel_multiple or lower ratio"
        ) from error


def _outputs(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """The last weighted layer to run: its channels are the network's outputs."""
    ran: list[nn.Module] = []
    weighted: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd)
    hooks = [
        layer.register_forward_hook(lambda layer, *_: ran.append(layer))
        for layer in module.modules()
        if isinstance(layer, weighted)
    ]
    try:
        with torch.no_grad():
            module(example)
    finally:
        for hook in hooks:
            hook.remove()
    return ran[-1:]


def _attention(module: nn.Module) -> list[nn.Module]:
    """Layers whose outputs are parted into heads: what stays of one would no longer fill them."""
    blocks = [part for part in module.modules() if isinstance(part, SelfAttention)]
    return [layer for block in blocks for layer in block.children()]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
