"""A moving average of the weights over the steps of a training, which is often better than any one of them.

Polyak & Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; exponential, as in Tan & Le 2019,
"EfficientNet". Running statistics of batch normalisation are averaged over the same steps by the same weights: they
are then those of networks which the averaged one stands amid. Whole numbers are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """The average of a module's state. `decay` is reached slowly, so that the first weights are soon forgotten."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in module.state_dict().items()}

    def update(self, module: nn.Module, step: int) -> None:
        """Take the state after `step` (from 1) in: decay * average + (1 - decay) * state.

        The decay is at most (1 + step) / (10 + step), as in TensorFlow's ExponentialMovingAverage.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, value in module.state_dict().items():
                average = self.state[name]
                if average.is_floating_point():
                    average.lerp_(value, share)
                else:
                    average.copy_(value)

    def put_back(self, state: dict[str, Tensor]) -> None:
        """Go on from an average that was kept."""
        with torch.no_grad():
            for name, value in state.items():
                self.state[name].copy_(value)

    @contextmanager
    def inside(self, module: nn.Module) -> Iterator[None]:
        """Meanwhile the module has the averaged state; afterwards its own again, bit by bit."""
        own = {name: value.detach().clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self.state)
        try:
            yield
        finally:
            module.load_state_dict(own)
