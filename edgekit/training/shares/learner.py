"""One share of a batch becomes its gradient; the same code in every process."""

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
class Share:
    """A part of a batch: preprocessed inputs x (n, *input), labels y (n, …), and cached logits of the teacher, if any.

    `weight` is its part of the batch's samples, `seed` that of torch's generator.
    """

    number: int
    weight: float
    seed: int
    x: np.ndarray
    y: np.ndarray
    cached: np.ndarray | None = None


@dataclass(frozen=True)
class Answer:
    """A share's weighted loss and gradients, None for a parameter without one; and what the teacher said, if asked."""

    loss: Tensor
    gradients: list[Tensor | None]
    computed: np.ndarray | None


class Learner:
    """A network and its objective, in training mode, on one device."""

    def __init__(self, module: nn.Module, aim: LabelObjective, device: torch.device) -> None:
        self.module, self.device = module, device
        # a copy: each share brings its own logits, while the training's objective has those of the epoch
        self.aim = copy.copy(aim) if isinstance(aim, LogitObjective) else aim
        trained = nn.ModuleList([module, *([aim.beside] if aim.beside else [])])
        # by name: another process's copy may hold them in another order
        parameters = [each for _, each in sorted(trained.named_parameters(), key=itemgetter(0))]
        self.parameters = [each for each in parameters if each.requires_grad]
        self.buffers = [each for _, each in sorted(trained.named_buffers(), key=itemgetter(0))]
        self.state: list[Tensor] = [*parameters, *self.buffers]

    def learn(self, shares: Sequence[Share]) -> Iterator[Answer]:
        """One answer a share; each begins with the same buffers, and those of share 0 stay, as running statistics."""
        before = [each.clone() for each in self.buffers]
        after = before
        for share in shares:
            self._put(self.buffers, before)
            answer = self._learn(share)
            if share.number == 0:
                after = [each.clone() for each in self.buffers]
            yield answer
        self._put(self.buffers, after)

    def follow(self, state: Sequence[Tensor]) -> None:
        """Take over the weights and buffers of another process."""
        self._put(self.state, state)

    def _learn(self, share: Share) -> Answer:
        torch.manual_seed(share.seed)
        if isinstance(self.aim, LogitObjective):
            self.aim.cached, self.aim.computed, self.aim.at = share.cached, [], 0
        for parameter in self.parameters:
            parameter.grad = None
        x, y = self._tensor(to_input(share.x)), self._tensor(share.y)
        loss = self.aim.loss(self.module, x, y) * share.weight
        loss.backward()
        parts = self.aim.computed if isinstance(self.aim, LogitObjective) else []
        computed = np.concatenate(parts) if parts else None
        return Answer(loss.detach(), [each.grad for each in self.parameters], computed)

    def _tensor(self, values: np.ndarray) -> Tensor:
        """Cloned to memory of torch's own: the last bits of a product can depend on where its factors begin."""
        return torch.from_numpy(np.require(values, requirements="W")).clone().to(self.device)

    @staticmethod
    def _put(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for each, value in zip(into, values, strict=True):
                each.copy_(value)
