"""The pruned shape trained from new weights (Liu et al. 2019, "Rethinking the Value of Network Pruning", 1810.05270).

What pruning keeps is worth its trouble where the same network, trained as long from the start, is not better.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from edgekit.core.config import TrainOptions
from edgekit.models import store
from edgekit.models.resize import resize
from edgekit.stages.prune.config import Config


def fresh(spec: store.ModelSpec, pruned: nn.Module, seed: int) -> nn.Module:
    """The network of `pruned`'s shapes with the weights that its builder begins with.

    Each tensor is the first part of the builder's, weights made larger as fewer inputs ask for.
    """
    module = store.build(spec, seed)
    whole = {name: value.clone() for name, value in module.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in pruned.state_dict().items()}
    resize(module, shapes)
    module.load_state_dict({name: _part(whole[name], shape) for name, shape in shapes.items()})
    store.dry_forward(module, spec)
    return module


def options(distilled: dict[str, Any], config: Config, tuned_steps: int) -> TrainOptions:
    """As the student was trained (`distilled`: the config of that stage), for as many epochs as both took together."""
    recipe = TrainOptions.model_validate(
        {name: value for name, value in distilled.items() if name in TrainOptions.model_fields}
    )
    together = recipe.epochs + tuned_steps * config.epochs
    return recipe.model_copy(update={"epochs": config.scratch_epochs or together})


def _part(whole: Tensor, shape: tuple[int, ...]) -> Tensor:
    part = whole[tuple(slice(size) for size in shape)].clone()
    if part.ndim < 2 or not part.is_floating_point():
        return part
    inputs, fewer = (tensor[0].numel() for tensor in (whole, part))
    return part * math.sqrt(inputs / fewer)
