"""Process 0's part of a training step: divide the batch, distribute the shards, and sum up their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgekit.training.data_parallel import division
from edgekit.training.data_parallel.channel import Channel, pack, packed_size, unpack
from edgekit.training.data_parallel.learner import Shard, ShardGradient, ShardLearner
from edgekit.training.objective import LabelObjective


class ShardCoordinator:
    """Computes the gradient of a batch with all processes. Without a `channel`, this process is the only one."""

    def __init__(
        self, learner: ShardLearner, objective: LabelObjective, shard_count: int, seed: int, channel: Channel | None
    ) -> None:
        self.learner, self.objective, self.shard_count, self.seed, self.channel = (
            learner,
            objective,
            shard_count,
            seed,
            channel,
        )

    def gradient(self, x: np.ndarray, y: np.ndarray, step: int) -> Tensor:
        """Store the gradient of a batch in the parameters, and return the weighted mean of the shards' losses.

        x (n, *input) are preprocessed inputs, y (n, …) labels. The network keeps the buffers (running statistics) that
        shard 0 gives.
        """
        shards = self._divide(x, y, step)
        total: list[Tensor | None] = [None] * len(self.learner.parameters)
        loss = torch.zeros((), device=self.learner.device)
        for part in self._gradients(shards):
            loss += part.loss.to(loss.device)
            total = [_add(so_far, more) for so_far, more in zip(total, part.gradients, strict=True)]
            if part.computed is not None:
                self.objective.take_computed(part.computed)
        for parameter, gradient in zip(self.learner.parameters, total, strict=True):
            parameter.grad = gradient
        # so that random numbers drawn later do not depend on the number of processes
        torch.manual_seed(division.shard_seed(self.seed, step, self.shard_count))
        return loss

    def _divide(self, x: np.ndarray, y: np.ndarray, step: int) -> list[Shard]:
        return [
            Shard(
                number=number,
                weight=(part.stop - part.start) / len(y),
                seed=division.shard_seed(self.seed, step, number),
                x=x[part],
                y=y[part],
                cached=self.objective.cached_logits(part.stop - part.start),
            )
            for number, part in enumerate(division.shard_slices(len(y), self.shard_count))
        ]

    def _gradients(self, shards: list[Shard]) -> Iterator[ShardGradient]:
        """Yield the gradients in the order of the shards."""
        if self.channel is None:
            yield from self.learner.learn(shards)
            return
        owners = division.shard_owners(len(shards), self.channel.processes)
        by_rank = [[shard for shard, owner in zip(shards, owners, strict=True) if owner == rank]
                   for rank in range(self.channel.processes)]  # fmt: skip
        for rank in range(1, self.channel.processes):
            self.channel.send(by_rank[rank], rank)
        self.channel.broadcast(pack(self.learner.state))
        yield from self.learner.learn(by_rank[0])
        for rank in range(1, self.channel.processes):
            for _ in by_rank[rank]:
                yield receive_gradients(self.channel, self.learner, rank)


def send_gradients(channel: Channel, gradient: ShardGradient) -> None:
    """Send the gradients of a shard to process 0."""
    has_gradient = [each is not None for each in gradient.gradients]
    channel.send((gradient.loss.cpu().numpy(), has_gradient, gradient.computed), 0)
    channel.send_flat(pack([each for each in gradient.gradients if each is not None]), 0)


def receive_gradients(channel: Channel, learner: ShardLearner, rank: int) -> ShardGradient:
    """Receive the gradients of the next shard from a process."""
    loss, has_gradient, computed = channel.receive(rank)
    parameters = [each for each, is_sent in zip(learner.parameters, has_gradient, strict=True) if is_sent]
    received = iter(unpack(channel.receive_flat(packed_size(parameters), rank), parameters))
    gradients = [next(received).to(learner.device) if is_sent else None for is_sent in has_gradient]
    return ShardGradient(torch.from_numpy(loss), gradients, computed)


def _add(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if total is None or more is None:
        return more if total is None else total
    return total + more
