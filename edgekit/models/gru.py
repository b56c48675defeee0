"""A recurrent network (GRU) for windows of sensors or spectra: whole windows in training, a step at a time on a device.

The gates are those of Cho et al. (2014) as PyTorch computes them.
"""

from __future__ import annotations

from torch import Tensor, nn

from edgekit.models.layers import window_channels


class GruNet(nn.Module):
    """(N, time, channels) -> logits of the last moment, from a hidden state of zeros."""

    def __init__(self, channels: int, num_classes: int, width: int, layers: int) -> None:
        super().__init__()
        self.gru = nn.GRU(channels, width, layers, batch_first=True)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(x)
        logits: Tensor = self.head(hidden[:, -1])
        return logits

    def step(self) -> GruStep:
        """The same network with the same weights, for `edgekit.targets.step.export`."""
        return GruStep(self)


class GruStep(nn.Module):
    """(1, time, channels) and the hidden state -> logits of the last moment, and the hidden state behind it."""

    def __init__(self, whole: GruNet) -> None:
        super().__init__()
        self.gru, self.head = whole.gru, whole.head
        self.states = {"hidden": (whole.gru.num_layers, 1, whole.gru.hidden_size)}

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        found, after = self.gru(x, hidden)
        return self.head(found[:, -1]), after


def gru(input_shape: tuple[int, ...], num_classes: int, width: int = 32, layers: int = 1) -> nn.Module:
    """(N, time, channels) -> logits; `width` hidden numbers in each of the `layers`.

    width 32, 1 layer, 10 classes: 3,594 parameters on 1 channel, 3,786 on 3.
    """
    channels = window_channels(input_shape)
    if width < 1 or layers < 1:
        raise ValueError(f"gru needs width and layers from 1, got width {width}, layers {layers}")
    return GruNet(channels, num_classes, width, layers)
