"""Groups of coupled channels, and one of them cut to a width (dependency graph of torch-pruning; Fang et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch_pruning
from torch import nn

from edgekit.data import Split
from edgekit.models import store
from edgekit.models.store import ModelSpec
from edgekit.stages.prune import bounds
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.importance import MEASURES, accumulate_gradients
from edgekit.stages.prune.structured import check, fixed_layers, fresh_groups, prunable


def widths(module: nn.Module, spec: ModelSpec, pinned: Sequence[str] = ()) -> dict[str, int]:
    """Channels of every group that may be cut, by the name of the layer that it is found from; ModelError if unseen.

    Groups with a layer that is `pinned` may not.
    """
    with prunable(spec), bounds.limited(module):
        pruner = _pruner(module, spec, "l2", {}, pinned)
        names = {layer: name for name, layer in module.named_modules()}
        groups = pruner.DG.get_all_groups(
            ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types
        )
        roots = [group[0].dep.target.module for group in groups]
        return {names[root]: int(pruner.DG.get_out_channels(root)) for root in roots}


def narrower(width: int, at_first: int, config: Config) -> list[int]:
    """The widths that a group of `width` channels may be cut to, widest first: multiples that the kernels like.

    No fewer channels stay than `max_layer_ratio` allows of the number `at_first`; at most `widths_per_group`.
    """
    multiple = config.channel_multiple
    least = max(multiple, multiple * math.ceil((1 - config.max_layer_ratio) * at_first / multiple - 1e-9))
    return list(range((width - 1) // multiple * multiple, least - 1, -multiple))[: config.widths_per_group]


def cut(
    module: nn.Module,
    spec: ModelSpec,
    config: Config,
    train: Split,
    group: str,
    width: int,
    pinned: Sequence[str] = (),
) -> None:
    """Leave the `width` channels of `group` that matter most to `config.importance`, in place.

    ModelError where that breaks the network, which is then of no use any more.
    """
    with prunable(spec):
        if config.importance == "taylor":
            accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
        before = widths(module, spec, pinned)[group]
        share = 1 - (width + 0.5) / before  # half a channel more: torch-pruning rounds down what stays
        with bounds.limited(module):
            _pruner(module, spec, config.importance, {module.get_submodule(group): share}, pinned).step()
        module.zero_grad(set_to_none=True)
        check(module, spec)


def _pruner(
    module: nn.Module, spec: ModelSpec, importance: str, shares: dict[nn.Module, float], pinned: Sequence[str]
) -> Any:
    example = store.zeros(spec)
    return torch_pruning.pruner.BasePruner(
        module,
        example,
        importance=MEASURES[importance](),
        pruning_ratio=0.0,
        pruning_ratio_dict=shares,
        ignored_layers=[*fixed_layers(module, example), *(module.get_submodule(name) for name in pinned)],
        **fresh_groups(),
    )
