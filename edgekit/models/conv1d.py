"""A plain network of convolutions over time, for windows of sensor data."""

from __future__ import annotations

from torch import Tensor, nn

from edgekit.models.layers import window_channels


class Conv1dNet(nn.Module):
    """(N, time, channels) -> logits. Inside, the channels come first, as `nn.Conv1d` expects."""

    def __init__(self, channels: int, num_classes: int, width: int, blocks: int, kernel: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for block in range(blocks):
            outputs = width * 2**block
            layers.append(conv_bn_relu(inputs, outputs, kernel))
            inputs = outputs
        self.blocks = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flatten(self.pool(self.blocks(x.transpose(1, 2)))))
        return logits


def conv_bn_relu(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """Return a convolution over time with stride 2, batch normalisation and ReLU."""
    conv = nn.Conv1d(inputs, outputs, kernel, stride=2, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm1d(outputs), nn.ReLU())


def conv1d(
    input_shape: tuple[int, ...], num_classes: int, width: int = 16, blocks: int = 3, kernel: int = 5
) -> nn.Module:
    """Build a network (N, time, channels) -> logits.

    The first block has `width` channels, and each further block twice as many. Each block halves the time. With width
    16, 3 blocks, kernel 5 and 10 classes there are 13,754 parameters on 1 channel and 13,914 on 3, and 0.26 M
    multiply-adds for 128 time steps of 3 channels.
    """
    channels = window_channels(input_shape)
    if width < 1 or blocks < 1 or kernel < 3 or kernel % 2 == 0:
        raise ValueError(
            f"conv1d needs width and blocks >= 1 and an odd kernel >= 3, got width {width}, blocks {blocks}, "
            f"kernel {kernel}"
        )
    return Conv1dNet(channels, num_classes, width, blocks, kernel)
