"""TC-ResNet: a residual network of convolutions over time (Choi et al. 2019, "Temporal Convolution for Real-time
Keyword Spotting on Mobile Devices").

The channels of a window of sensor data or of a spectrum are the network's channels, so the convolutions slide over the
time only. Unlike `conv1d` it has shortcuts and long kernels: each convolution covers 9 time steps, so the network needs
to halve the time less often for the same receptive field.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from edgekit.models.layers import check_multipliers, window_channels

STEM = 16
CHANNELS = (24, 32, 48)


class TemporalResidual(nn.Module):
    """(N, C, T) -> (N, outputs, T / stride): two convolutions over time, added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, kernel: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv_bn(inputs, outputs, kernel, stride), nn.ReLU(), *_conv_bn(outputs, outputs, kernel)
        )
        plain = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if plain else nn.Sequential(*_conv_bn(inputs, outputs, 1, stride), nn.ReLU())
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class TCResNet(nn.Module):
    """(N, time, channels) -> logits. Inside, the channels come first, as `nn.Conv1d` expects."""

    def __init__(self, channels: int, num_classes: int, widths: Sequence[int], blocks: int, kernel: int) -> None:
        super().__init__()
        inputs = widths[0]
        layers: list[nn.Module] = [*_conv_bn(channels, inputs, 3), nn.ReLU()]
        for outputs in widths[1:]:
            for index in range(blocks):
                layers.append(TemporalResidual(inputs, outputs, 1 if index else 2, kernel))
                inputs = outputs
        self.blocks = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flatten(self.pool(self.blocks(x.transpose(1, 2)))))
        return logits


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv1d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm1d(outputs)]


def tc_resnet(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 1.0, blocks: int = 1, kernel: int = 9
) -> nn.Module:
    """Build a network (N, time, channels) -> logits.

    It has three groups of `blocks` blocks. Each group halves the time once, and `alpha` multiplies all channels. With
    1 block it is TC-ResNet8, with 66 K parameters for 40 channels and 12 classes; with 2 blocks it is TC-ResNet14. With
    alpha 1 and 10 classes there are 63,210 parameters on 1 channel and 63,306 on 3, and 1.7 M multiply-adds for 128
    time steps of 3 channels.
    """
    channels = window_channels(input_shape)
    check_multipliers("tc_resnet", alpha=alpha)
    if blocks < 1 or kernel < 3 or kernel % 2 == 0:
        raise ValueError(f"tc_resnet needs blocks >= 1 and an odd kernel >= 3, got blocks {blocks}, kernel {kernel}")
    widths = [round(each * alpha) for each in (STEM, *CHANNELS)]
    return TCResNet(channels, num_classes, widths, blocks, kernel)
