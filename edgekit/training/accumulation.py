"""The mean gradient of several batches, for optimizer steps on more samples than fit into memory at once."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class MeanGradient:
    """Adds up the gradients of batches, and gives the parameters their mean over all samples of these batches.

    Without batch normalization, this is the gradient of one large batch, except for rounding. Batch normalization uses
    the statistics of each batch.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._reset()

    def add(self, samples: int) -> None:
        """Add the gradient that the parameters hold, which is the mean over a batch of `samples`."""
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                weighted, total = parameter.grad * samples, self._totals[index]
                self._totals[index] = weighted if total is None else total.add_(weighted)
        self._samples += samples

    def store(self) -> None:
        """Store the mean of the gradients in the parameters, and begin anew."""
        for parameter, total in zip(self.parameters, self._totals, strict=True):
            parameter.grad = None if total is None else total.div_(self._samples)
        self._reset()

    def _reset(self) -> None:
        self._totals: list[Tensor | None] = [None] * len(self.parameters)
        self._samples = 0
