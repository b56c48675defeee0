"""Process 0's side of a step: divide the batch, hand the shares out, add their gradients up in their order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgekit.training.objective import LabelObjective
from edgekit.training.shares import division
from edgekit.training.shares.learner import Answer, Learner, Share
from edgekit.training.shares.wire import Wire, pack, size_of, unpack


class Team:
    """All processes of one training, of which this is the first; without a `wire` it is the only one."""

    def __init__(self, learner: Learner, aim: LabelObjective, shares: int, seed: int, wire: Wire | None) -> None:
        self.learner, self.aim, self.shares, self.seed, self.wire = learner, aim, shares, seed, wire

    def gradient(self, x: np.ndarray, y: np.ndarray, step: int) -> Tensor:
        """Leave the batch's gradient in the parameters; its loss, the shares' weighted mean.

        x (n, *input) is preprocessed, y (n, …) are the labels. Share 0's buffers stay in the network.
        """
        shares = self._shares(x, y, step)
        total: list[Tensor | None] = [None] * len(self.learner.parameters)
        loss = torch.zeros((), device=self.learner.device)
        for answer in self._answers(shares):
            loss += answer.loss.to(loss.device)
            total = [_sum(mine, more) for mine, more in zip(total, answer.gradients, strict=True)]
            if answer.computed is not None:
                self.aim.take_computed(answer.computed)
        for parameter, gradient in zip(self.learner.parameters, total, strict=True):
            parameter.grad = gradient
        torch.manual_seed(division.seed_of(self.seed, step, self.shares))  # whoever draws next: the same numbers
        return loss

    def _shares(self, x: np.ndarray, y: np.ndarray, step: int) -> list[Share]:
        return [
            Share(
                number=number,
                weight=(part.stop - part.start) / len(y),
                seed=division.seed_of(self.seed, step, number),
                x=x[part],
                y=y[part],
                cached=self.aim.cached_logits(part.stop - part.start),
            )
            for number, part in enumerate(division.shares_of(len(y), self.shares))
        ]

    def _answers(self, shares: list[Share]) -> Iterator[Answer]:
        """In the order of the shares, whoever computed them."""
        if self.wire is None:
            yield from self.learner.learn(shares)
            return
        owners = division.owners(len(shares), self.wire.processes)
        of = [[share for share, owner in zip(shares, owners, strict=True) if owner == rank]
              for rank in range(self.wire.processes)]  # fmt: skip
        for rank in range(1, self.wire.processes):
            self.wire.send(of[rank], rank)
        self.wire.spread(pack(self.learner.state))
        yield from self.learner.learn(of[0])
        for rank in range(1, self.wire.processes):
            for _ in of[rank]:
                yield receive(self.wire, self.learner, rank)


def send(wire: Wire, learner: Learner, answer: Answer) -> None:
    """An answer on its way to process 0."""
    there = [each is not None for each in answer.gradients]
    wire.send((answer.loss.cpu().numpy(), there, answer.computed), 0)
    wire.send_flat(pack([each for each in answer.gradients if each is not None]), 0)


def receive(wire: Wire, learner: Learner, rank: int) -> Answer:
    """What a process answered to its next share."""
    loss, there, computed = wire.receive(rank)
    given = [each for each, is_there in zip(learner.parameters, there, strict=True) if is_there]
    gradients = iter(unpack(wire.receive_flat(size_of(given), rank), given))
    found = [next(gradients).to(learner.device) if is_there else None for is_there in there]
    return Answer(torch.from_numpy(loss), found, computed)


def _sum(mine: Tensor | None, more: Tensor | None) -> Tensor | None:
    if mine is None or more is None:
        return more if mine is None else mine
    return mine + more
