"""BC-ResNet for sounds (Kim et al. 2021, "Broadcasted Residual Learning for Efficient Keyword Spotting").

A block filters the two-dimensional map along the frequencies. It then filters the mean over the frequencies along the
time, and adds the result to every frequency. This network differs from the paper's: it uses batch normalisation
instead of sub-spectral normalisation, ReLU instead of swish, and no dropout. Converters can therefore fold the
normalisation, and int8 needs no exponential.
"""

from __future__ import annotations

from torch import Tensor, nn

from edgekit.models.layers import check_multipliers, conv_bn_relu, image_channels

STAGES = ((8, 2, 1, 1), (12, 2, 2, 2), (16, 4, 2, 4), (20, 4, 1, 8))
"""(channels at alpha 1, blocks, stride along the frequencies, dilation along the time): the paper's table 1."""
STEM, TOP = 16, 32


class BroadcastedResidual(nn.Module):
    """(N, C, time, frequencies) -> (N, outputs, time, frequencies / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.plain = stride == 1 and inputs == outputs
        self.widen = nn.Identity() if self.plain else conv_bn_relu(inputs, outputs, 1)
        self.along_frequencies = nn.Sequential(
            nn.Conv2d(outputs, outputs, (1, 3), (1, stride), (0, 1), groups=outputs, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.along_time = nn.Sequential(
            nn.Conv2d(outputs, outputs, (3, 1), 1, (dilation, 0), (dilation, 1), groups=outputs, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 1, bias=False),
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.along_frequencies(self.widen(x))
        y = y + self.along_time(y.mean(3, keepdim=True))
        output: Tensor = self.relu(x + y if self.plain else y)
        return output


class BCResNet(nn.Module):
    """(N, C, time, frequencies) -> logits."""

    def __init__(self, channels: int, num_classes: int, alpha: float) -> None:
        super().__init__()
        inputs = round(STEM * alpha)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, inputs, 5, (1, 2), 2, bias=False), nn.BatchNorm2d(inputs), nn.ReLU()
        )
        layers: list[nn.Module] = []
        for width, blocks, stride, dilation in STAGES:
            outputs = round(width * alpha)
            for index in range(blocks):
                layers.append(BroadcastedResidual(inputs, outputs, 1 if index else stride, dilation))
                inputs = outputs
        self.blocks = nn.Sequential(*layers)
        self.filter = nn.Conv2d(inputs, inputs, 5, padding=2, groups=inputs, bias=False)
        self.top = conv_bn_relu(inputs, round(TOP * alpha), 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(round(TOP * alpha), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.top(self.filter(self.blocks(self.stem(x))))
        logits: Tensor = self.head(self.flatten(self.pool(x)))
        return logits


def bc_resnet(input_shape: tuple[int, ...], num_classes: int, alpha: float = 1.0) -> nn.Module:
    """Build a network (N, C, H, W) -> logits, where H is the time and W the frequencies, as `log_mel` returns them.

    `alpha` multiplies the channels of every layer. The paper uses 1, 1.5, 2, 3, 6 and 8, which give 9.2 K to 321 K
    parameters, 1.5 K to 12 K of them in its sub-spectral norms. With alpha 1 and 10 classes there are 7,694 parameters
    on 1 channel and 8,494 on 3, and 2.9 M multiply-adds for 98 frames of 40 mels.
    """
    check_multipliers("bc_resnet", alpha=alpha)
    return BCResNet(image_channels(input_shape), num_classes, alpha)
