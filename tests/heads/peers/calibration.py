"""Make the answers of an untrained detector depend on the picture, so that its boxes can be compared.

An untrained network gives nearly the same score everywhere, so that rounding decides which boxes are kept. Here its
normalizations get their statistics from real pictures, and its last layers are scaled so that scores spread over the
whole range, a few in a hundred are likely, and a point hardly ever has two likely classes, as in a trained network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

CLASSES = 3
SIDES = 4
Run = Callable[[], object]
"""Runs the network on the pictures of the calibration."""


@dataclass(frozen=True)
class Channels:
    """Channels of the output of a layer, and the mean and the deviation that each of them gets.

    The three channels of `classes` are spread in three directions of a plane, so that at most one of them is likely.
    """

    count: int
    mean: tuple[float, ...] = (0.0,)
    deviation: float = 1.0
    are_classes: bool = False


def classes(mean: float = -5.4, deviation: float = 2.0) -> Channels:
    """Return how logits of classes are spread; by default 1.5 % of them belong to probabilities above 0.25."""
    return Channels(CLASSES, (mean,), deviation, are_classes=True)


def sides(mean: float = 0.0, deviation: float = 1.0) -> Channels:
    """Return how the four numbers of a box are spread."""
    return Channels(SIDES, (mean,), deviation)


def distributions(bins: int, penalty: float = 0.7) -> Channels:
    """Return how the logits of distances are spread; `penalty` for each further bin makes boxes a few cells wide."""
    return Channels(SIDES * bins, tuple(-penalty * bin_ for bin_ in range(bins)) * SIDES)


def set_norms(network: nn.Module, run: Run) -> None:
    """Give all normalizations the mean and variance that they see while `run` runs, in place."""
    norms = [each for each in network.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
        norm.train()
    with torch.no_grad():
        run()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval()
        norm.momentum = momentum


def spread(layers: dict[nn.Module, Sequence[Channels]], run: Run) -> None:
    """Change the weights of last layers, in place, so that their channels are spread; a sequence may be repeated.

    None of the layers may depend on another one.
    """
    for layer in layers:
        if not layer.weight.any():  # type: ignore[operator, union-attr]
            nn.init.normal_(layer.weight)  # type: ignore[arg-type]
    seen: dict[nn.Module, list[torch.Tensor]] = {layer: [] for layer in layers}

    def keep(layer: nn.Module, inputs: Sequence[Any], output: torch.Tensor) -> None:
        table = output.movedim(1, -1) if isinstance(layer, nn.Conv2d) else output
        seen[layer].append(table.reshape(-1, table.shape[-1]))

    handles = [layer.register_forward_hook(keep) for layer in layers]
    with torch.no_grad():
        run()
        for handle, (layer, parts) in zip(handles, layers.items(), strict=True):
            handle.remove()
            if seen[layer]:  # a decoder may use only the last of several
                _spread(layer, parts, torch.cat(seen[layer]))


def _spread(layer: nn.Module, parts: Sequence[Channels], outputs: torch.Tensor) -> None:
    count = outputs.shape[1]
    repeated = list(parts) * (count // sum(part.count for part in parts))
    assert sum(part.count for part in repeated) == count, f"{count} channels"
    centred = outputs - outputs.mean(dim=0)
    blocks, start = [], 0
    for part in repeated:
        blocks.append(_mixture(centred[:, start : start + part.count], part))
        start += part.count
    mixture = torch.block_diag(*blocks)
    means = torch.cat([torch.tensor(part.mean).expand(part.count) for part in repeated])
    weight, bias = layer.weight, layer.bias
    weight.copy_((mixture @ weight.flatten(1)).view_as(weight))  # type: ignore[operator, union-attr, arg-type]
    bias.copy_(mixture @ (bias - outputs.mean(dim=0)) + means)  # type: ignore[operator, union-attr]


def _mixture(outputs: torch.Tensor, part: Channels) -> torch.Tensor:
    """Return the matrix by which centred outputs (n, channels) are multiplied."""
    if not part.are_classes:
        return torch.diag(part.deviation / outputs.std(dim=0).clamp(min=1e-6))
    plane = outputs[:, :2].double()
    whitened = torch.linalg.inv(torch.linalg.cholesky(plane.T @ plane / len(plane) + 1e-12 * torch.eye(2)))
    angles = torch.arange(CLASSES, dtype=torch.float64) * 2 * math.pi / CLASSES
    directions = torch.stack([angles.cos(), angles.sin()], dim=1) * part.deviation
    return torch.cat([directions @ whitened, torch.zeros(CLASSES, CLASSES - 2)], dim=1).float()
