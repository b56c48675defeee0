"""Compute the gradient of a shard; every process uses this code."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.training.objective import LabelObjective, LogitObjective
from edgekit.training.predict import to_input


@dataclass(frozen=True)
class Shard:
    """A part of a batch: preprocessed inputs x (n, *input), labels y (n, …), and cached logits of the teacher, if any.

    `weight` is its fraction of the batch, `seed` the seed of torch's generator.
    """

    number: int
    weight: float
    seed: int
    x: np.ndarray
    y: np.ndarray
    cached: np.ndarray | None = None


@dataclass(frozen=True)
class ShardGradient:
    """The weighted loss and gradients of a shard (None for parameters without one), and computed logits, if any."""

    loss: Tensor
    gradients: list[Tensor | None]
    computed: np.ndarray | None


class ShardLearner:
    """A network and its objective, in training mode, on one device."""

    def __init__(self, module: nn.Module, objective: LabelObjective, device: torch.device) -> None:
        self.module, self.device = module, device
        # a copy, because it holds the logits of one shard, whereas the training's own objective holds the epoch's
        self.objective = copy.copy(objective) if isinstance(objective, LogitObjective) else objective
        trained = nn.ModuleList([module, *([objective.beside] if objective.beside else [])])
        # sorted by name, because the copy in another process may have another order
        parameters = [each for _, each in sorted(trained.named_parameters(), key=itemgetter(0))]
        self.parameters = [each for each in parameters if each.requires_grad]
        self.buffers = [each for _, each in sorted(trained.named_buffers(), key=itemgetter(0))]
        self.state: list[Tensor] = [*parameters, *self.buffers]

    def learn(self, shards: Sequence[Shard]) -> Iterator[ShardGradient]:
        """Yield the gradients of each shard. All shards start with the same buffers, and those of shard 0 are kept."""
        before = [each.clone() for each in self.buffers]
        after = before
        for shard in shards:
            self._put(self.buffers, before)
            gradient = self._learn(shard)
            if shard.number == 0:
                after = [each.clone() for each in self.buffers]
            yield gradient
        self._put(self.buffers, after)

    def follow(self, state: Sequence[Tensor]) -> None:
        """Copy the weights and buffers of another process."""
        self._put(self.state, state)

    def _learn(self, shard: Shard) -> ShardGradient:
        torch.manual_seed(shard.seed)
        if isinstance(self.objective, LogitObjective):
            self.objective.cached, self.objective.computed, self.objective.position = shard.cached, [], 0
        for parameter in self.parameters:
            parameter.grad = None
        x, y = self._tensor(to_input(shard.x)), self._tensor(shard.y)
        loss = self.objective.loss(self.module, x, y) * shard.weight
        loss.backward()
        parts = self.objective.computed if isinstance(self.objective, LogitObjective) else []
        computed = np.concatenate(parts) if parts else None
        return ShardGradient(loss.detach(), [each.grad for each in self.parameters], computed)

    def _tensor(self, values: np.ndarray) -> Tensor:
        """Copy values to memory of torch's own, because the last bits of a product can depend on alignment."""
        return torch.from_numpy(np.require(values, requirements="W")).clone().to(self.device)

    @staticmethod
    def _put(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for target, value in zip(targets, values, strict=True):
                target.copy_(value)
