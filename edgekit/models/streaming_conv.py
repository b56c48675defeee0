"""Causal convolutions over time (van den Oord et al. 2016), trained on windows and run step by step on a device.

An answer depends only on the current time step and those before it. A device that stores the last inputs of each
convolution therefore gives the same answer as for the whole window, and computes nothing twice.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from edgekit.models.layers import window_channels


class CausalConv(nn.Module):
    """(N, inputs, time) -> (N, outputs, time): a convolution padded with zeros at the start, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0)
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(self.pad(x))))


class StreamingConv(nn.Module):
    """(N, time, channels) -> logits of the last time step."""

    def __init__(self, channels: int, num_classes: int, width: int, blocks: int, kernel: int) -> None:
        super().__init__()
        inputs = [channels, *[width] * (blocks - 1)]
        self.blocks = nn.Sequential(*(CausalConv(each, width, kernel, 2**index) for index, each in enumerate(inputs)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(x.transpose(1, 2))[:, :, -1])
        return logits

    def step(self) -> StreamingStep:
        """Return the trained network as a step for `edgekit.targets.step.export`."""
        return StreamingStep(self.eval())


class StreamingStep(nn.Module):
    """(1, time, channels) and the last inputs of each convolution -> logits of the last time step, and the new states.

    A call may have any number of time steps. `states` gives the shape of each state. A state has as many time steps as
    its convolution reaches back.
    """

    def __init__(self, network: StreamingConv) -> None:
        super().__init__()
        blocks = [each for each in network.blocks if isinstance(each, CausalConv)]
        self.convs = nn.ModuleList(fuse_conv_bn_eval(each.conv, each.norm) for each in blocks)
        self.head = network.head
        self.states = {
            f"past_{index}": (1, each.conv.in_channels, int(each.pad.padding[0])) for index, each in enumerate(blocks)
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
    """Build a network (N, time, channels) -> logits of the last time step.

    The logits depend on the last `1 + (kernel - 1) · (2^blocks - 1)` time steps, because each block reaches twice as
    far back as the one before. The network's `step()` runs on a device, a few time steps at a time. With width 16,
    4 blocks, kernel 3 and 10 classes there are 2,650 parameters on 1 channel and 2,746 on 3.
    """
    channels = window_channels(input_shape)
    if width < 1 or blocks < 1 or kernel < 2:
        raise ValueError(
            f"streaming_conv needs width and blocks >= 1 and a kernel >= 2, got width {width}, blocks {blocks}, "
            f"kernel {kernel}"
        )
    return StreamingConv(channels, num_classes, width, blocks, kernel)
