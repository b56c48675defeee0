"""Process 0's part of a training step: divide the batch, distribute the shards, and sum up their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgekit.training.objective import LabelObjective
from edgekit.training.shares import division
from edgekit.training.shares.channel import Channel, pack, packed_size, unpack
from edgekit.training.shares.learner import Shard, ShardGradient, ShardLearner


class ShardCoordinator:
    """Computes the gradient of a batch with all processes. Without a `channel`, this process is the only one."""

    def __init__(
        self, learner: ShardLearner, objective: LabelObjective, shares: int, seed: int, channel: Channel | None
    ) -> None:
        self.learner, self.objective, self.shares, self.seed, self.channel = learner, objective, shares, seed, channel

    def gradient(self, x: np.ndarray, y: np.ndarray, step: int) -> Tensor:
        """Compute the gradient of a batch in the parameters, and return its loss, the weighted mean of the shards'.

        x (n, *input) are preprocessed inputs, y (n, …) labels. The network keeps the buffers of shard 0.
        """
        shares = self._shares(x, y, step)
        total: list[Tensor | None] = [None] * len(self.learner.parameters)
        loss = torch.zeros((), device=self.learner.device)
        for answer in self._answers(shares):
            loss += answer.loss.to(loss.device)
            total = [_add(mine, more) for mine, more in zip(total, answer.gradients, strict=True)]
            if answer.computed is not None:
                self.objective.take_computed(answer.computed)
        for parameter, gradient in zip(self.learner.parameters, total, strict=True):
            parameter.grad = gradient
        torch.manual_seed(
            division.shard_seed(self.seed, step, self.shares)
        )  # so that later random numbers are the same
        return loss

    def _shares(self, x: np.ndarray, y: np.ndarray, step: int) -> list[Shard]:
        return [
            Shard(
                number=number,
                weight=(part.stop - part.start) / len(y),
                seed=division.shard_seed(self.seed, step, number),
                x=x[part],
                y=y[part],
                cached=self.objective.cached_logits(part.stop - part.start),
            )
            for number, part in enumerate(division.shard_slices(len(y), self.shares))
        ]

    def _answers(self, shares: list[Shard]) -> Iterator[ShardGradient]:
        """Yield the gradients in the order of the shards."""
        if self.channel is None:
            yield from self.learner.learn(shares)
            return
        owners = division.shard_owners(len(shares), self.channel.processes)
        of = [[share for share, owner in zip(shares, owners, strict=True) if owner == rank]
              for rank in range(self.channel.processes)]  # fmt: skip
        for rank in range(1, self.channel.processes):
            self.channel.send(of[rank], rank)
        self.channel.broadcast(pack(self.learner.state))
        yield from self.learner.learn(of[0])
        for rank in range(1, self.channel.processes):
            for _ in of[rank]:
                yield receive_gradients(self.channel, self.learner, rank)


def send_gradients(channel: Channel, learner: ShardLearner, answer: ShardGradient) -> None:
    """Send the gradients of a shard to process 0."""
    there = [each is not None for each in answer.gradients]
    channel.send((answer.loss.cpu().numpy(), there, answer.computed), 0)
    channel.send_flat(pack([each for each in answer.gradients if each is not None]), 0)


def receive_gradients(channel: Channel, learner: ShardLearner, rank: int) -> ShardGradient:
    """Receive the gradients of the next shard from a process."""
    loss, there, computed = channel.receive(rank)
    given = [each for each, is_there in zip(learner.parameters, there, strict=True) if is_there]
    gradients = iter(unpack(channel.receive_flat(packed_size(given), rank), given))
    found = [next(gradients).to(learner.device) if is_there else None for is_there in there]
    return ShardGradient(torch.from_numpy(loss), found, computed)


def _add(mine: Tensor | None, more: Tensor | None) -> Tensor | None:
    if mine is None or more is None:
        return more if mine is None else mine
    return mine + more
