"""Causal convolutions over time (van den Oord et al., 2016): whole windows in training, a step at a time on a device.

A moment's answer depends on it and on those before. So a device that remembers the last inputs of each convolution
gives the answer of the whole window, and computes nothing twice.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from edgekit.models.layers import window_channels


class CausalConv(nn.Module):
    """(N, inputs, time) -> (N, outputs, time): convolution with zeros before the first moment, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0)
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(self.pad(x))))


class StreamingConv(nn.Module):
    """(N, time, channels) -> logits of the last moment."""

    def __init__(self, channels: int, num_classes: int, width: int, blocks: int, kernel: int) -> None:
        super().__init__()
        inputs = [channels, *[width] * (blocks - 1)]
        self.blocks = nn.Sequential(*(CausalConv(each, width, kernel, 2**place) for place, each in enumerate(inputs)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(x.transpose(1, 2))[:, :, -1])
        return logits

    def step(self) -> StreamingStep:
        """The trained network as a step, for `edgekit.targets.step.export`."""
        return StreamingStep(self.eval())


class StreamingStep(nn.Module):
    """(1, time, channels) and each convolution's last inputs -> logits of the last moment, and the inputs behind it.

    Any number of moments makes a step: `states` are as long as the convolutions reach back.
    """

    def __init__(self, whole: StreamingConv) -> None:
        super().__init__()
        blocks = [each for each in whole.blocks if isinstance(each, CausalConv)]
        self.convs = nn.ModuleList(fuse_conv_bn_eval(each.conv, each.norm) for each in blocks)
        self.head = whole.head
        self.states = {
            f"past_{place}": (1, each.conv.in_channels, int(each.pad.padding[0])) for place, each in enumerate(blocks)
        }

    def forward(self, x: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x, after = x.transpose(1, 2), []
        for conv, before in zip(self.convs, past, strict=True):
            x = torch.cat([before, x], 2)
            after.append(x[:, :, -before.shape[2] :])
            x = torch.relu(conv(x))
        return (self.head(x[:, :, -1]), *after)


def streaming_conv(
    input_shape: tuple[int, ...], num_classes: int, width: int = 16, blocks: int = 4, kernel: int = 3
) -> nn.Module:
    """(N, time, channels) -> logits of the last moment, which sees `1 + (kernel - 1) · (2^blocks - 1)` moments.

    Each block reaches twice as far back. Its `step()` runs on a device, a few moments at a time.
    width 16, 4 blocks, kernel 3, 10 classes: 2,650 parameters on 1 channel, 2,746 on 3.
    """
    channels = window_channels(input_shape)
    if width < 1 or blocks < 1 or kernel < 2:
        raise ValueError(
            f"streaming_conv needs width and blocks from 1 and a kernel from 2, got width {width}, blocks {blocks}, "
            f"kernel {kernel}"
        )
    return StreamingConv(channels, num_classes, width, blocks, kernel)
