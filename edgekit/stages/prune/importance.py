"""How much each channel matters: torch-pruning's own measures, and what of every layer no measure may take.

Norms of a channel's weights over its whole group (l1, l2; Li et al. 2017), the first-order change of the loss without
it (Taylor; Molchanov et al. 2019), and magnitudes by their share of what is left of the layer (LAMP; Lee et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch_pruning
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.tasks import Task
from edgekit.data import Split
from edgekit.models.eager import eager_input, single_thread
from edgekit.models.joined import joined
from edgekit.models.onednn import strided_pointwise_as_slices
from edgekit.stages.prune.config import Config
from edgekit.training import losses

BATCH = 64
"""Samples whose gradients are added up at a time."""
MEASURES: dict[str, Callable[[], Any]] = {
    "l1": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=1),
    "l2": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
    "taylor": torch_pruning.importance.GroupTaylorImportance,
    "lamp": torch_pruning.importance.LAMPImportance,
}


class Bounded(torch_pruning.importance.Importance):
    """The scores of another measure, the strongest `least` channels of each group's root layer out of reach.

    A group in which nothing matters scores nought: normalised by its mean, it would score nothing that can be ranked.
    """

    def __init__(self, measure: Any, least: Mapping[nn.Module, int]) -> None:
        self.measure, self.least = measure, least

    def __call__(self, group: Any) -> Tensor | None:
        scores = self.measure(group)
        if scores is None:
            return None
        bounded: Tensor = torch.nan_to_num(scores, nan=0.0)
        kept = min(self.least.get(group[0].dep.target.module, 0), len(bounded))
        bounded[torch.topk(bounded, kept).indices] = torch.inf
        return bounded


def bound(pruner: Any, config: Config) -> None:
    """Let no layer lose more than `max_layer_ratio` of its channels where they are ranked over the whole network.

    torch-pruning looks at its own limit before a step alone: a single one may take a layer beyond it, and a layer of
    which it would take everything is left whole.
    """
    channels = _root_channels(pruner)
    multiple = config.channel_multiple
    share = 1 - config.max_layer_ratio
    least = {
        root: min(count, multiple * math.ceil(share * count / multiple - 1e-9)) for root, count in channels.items()
    }
    reachable = max(0.0, 1 - (sum(least.values()) + 1e-6) / max(sum(channels.values()), 1))
    pruner.importance = Bounded(pruner.importance, least)
    pruner.per_step_pruning_ratio = [min(ratio, reachable) for ratio in pruner.per_step_pruning_ratio]


def accumulate_gradients(
    module: nn.Module, train: Split, preprocess: list[dict[str, Any]], samples: int, task: Task = "classification"
) -> None:
    """Leave in `module` the gradients of the task's mean loss on the labels, over `samples` evenly from `train`.

    In eval mode and on one thread, batch by batch in order: the same bits each time.
    """
    chosen = train.take(np.unique(np.linspace(0, len(train) - 1, min(samples, len(train))).round().astype(np.int64)))
    loss, reconstructs = losses.hard(task), tasks.named(task).RECONSTRUCTS
    module.eval()
    module.zero_grad(set_to_none=True)
    with single_thread(), strided_pointwise_as_slices(module):
        for start in range(0, len(chosen), BATCH):
            x = eager_input(chosen.x[start : start + BATCH], preprocess)
            wanted = x if reconstructs else torch.tensor(chosen.y[start : start + BATCH])
            (loss(joined(module(x)), wanted) * (len(x) / len(chosen))).backward()


def _root_channels(pruner: Any) -> dict[nn.Module, int]:
    groups = pruner.DG.get_all_groups(ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types)
    roots = [group[0].dep.target.module for group in groups]
    return {root: pruner.DG.get_out_channels(root) for root in roots}
