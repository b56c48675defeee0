"""Layers and helpers that the reference networks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from torch import Tensor, nn

Block = Literal["separable", "residual"]
Activation = Callable[[], nn.Module]


def image_channels(input_shape: tuple[int, ...]) -> int:
    """Return C of (C, H, W); raise ValueError if the shape is not that of an image."""
    if len(input_shape) != 3:
        raise ValueError(f"needs an image as input, shape (channels, height, width), got {tuple(input_shape)}")
    return input_shape[0]


def window_channels(input_shape: tuple[int, ...]) -> int:
    """Return C of (time, C); raise ValueError if the shape is not that of a window."""
    if len(input_shape) != 2:
        raise ValueError(f"needs windows as input, shape (time, channels), got {tuple(input_shape)}")
    return input_shape[1]


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """Return a convolution with batch normalisation; for odd kernels the output size is ceil(size / stride)."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=bias)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def conv_bn_relu(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """Return a convolution with batch normalisation and ReLU."""
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, stride, groups, bias), nn.ReLU())


def conv_bn_act(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: Activation = nn.ReLU
) -> nn.Sequential:
    """Return a convolution with batch normalisation and an activation."""
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, stride, groups), activation())


def depthwise_separable(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a 3x3 convolution of each channel, then a 1x1 convolution across channels (Howard et al. 2017)."""
    return nn.Sequential(conv_bn_relu(inputs, inputs, 3, stride, groups=inputs), conv_bn_relu(inputs, outputs, 1))


class Residual(nn.Module):
    """Two 3x3 convolutions, added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn_relu(inputs, outputs, 3, stride), conv_bn(outputs, outputs, 3))
        plain = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if plain else conv_bn(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class SqueezeExcite(nn.Module):
    """Multiply each channel by a weight computed from the means of all channels (Hu et al. 2018; Howard et al. 2019).

    Two 1x1 convolutions, with `squeezed` channels between them, and a hard sigmoid give the weight, which is in 0 to 1.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze, self.relu = nn.Conv2d(channels, squeezed, 1), nn.ReLU()
        self.excite, self.gate = nn.Conv2d(squeezed, channels, 1), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = self.gate(self.excite(self.relu(self.squeeze(self.pool(x)))))
        return x * weight


class InvertedResidual(nn.Module):
    """An inverted residual block (Sandler et al. 2018).

    A 1x1 convolution widens the input, a convolution filters each channel, and a 1x1 convolution without activation
    narrows it again. The result is added to the input if their shapes agree. `squeezed` is the number of channels of a
    squeeze-excite after the filter; 0 means none.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        hidden: int,
        kernel: int = 3,
        activation: Activation = nn.ReLU,
        squeezed: int = 0,
    ) -> None:
        super().__init__()
        widen = [conv_bn_act(inputs, hidden, 1, activation=activation)] if hidden != inputs else []
        weigh = [SqueezeExcite(hidden, squeezed)] if squeezed else []
        self.body = nn.Sequential(
            *widen,
            conv_bn_act(hidden, hidden, kernel, stride, groups=hidden, activation=activation),
            *weigh,
            conv_bn(hidden, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


def classifier(inputs: int, num_classes: int) -> list[nn.Module]:
    """Return the layers (N, inputs, H, W) -> logits: the mean over height and width, and a dense layer."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes)]


def reduce_strides(strides: Sequence[int], reduction: int) -> list[int]:
    """Set the first strides of a network to 1, so that it divides height and width by `reduction`.

    Small images keep their details this way: of the five strides of 2 that suit 224x224, 32x32 needs only the last
    three. Raises ValueError if no such strides have the product `reduction`.
    """
    reduced, remaining = list(strides), max(1, reduction)
    for index in reversed(range(len(reduced))):
        reduced[index] = min(reduced[index], remaining)
        remaining //= reduced[index]
    if math.prod(reduced) != reduction:
        raise ValueError(f"reduction must be a power of 2 from 1 to {math.prod(strides)}, got {reduction}")
    return reduced


def check_multipliers(name: str, **multiples: float) -> None:
    """Raise ValueError if a multiplier of channels is not positive."""
    for argument, value in multiples.items():
        if not value > 0:
            raise ValueError(f"{name} needs {argument} above 0, got {value}")


def block_maker(block: Block) -> Callable[[int, int, int], nn.Module]:
    """Return the function that builds a block from input channels, output channels and stride.

    Raises ValueError if there is no such kind of block.
    """
    if block not in get_args(Block):
        raise ValueError(f"got block {block!r}; known: {', '.join(get_args(Block))}")
    return depthwise_separable if block == "separable" else Residual


def check_sizes(name: str, width: int, depth: int) -> None:
    """Raise ValueError if `width` is less than 1 or `depth` is negative."""
    if width < 1 or depth < 0:
        raise ValueError(f"{name} needs a width >= 1 and a depth >= 0, got width {width}, depth {depth}")


def round_channels(channels: float, divisor: int = 8) -> int:
    """Round a number of channels to a multiple of `divisor`, by MobileNet's rule.

    The result is at least `divisor`, and never more than a tenth below `channels`.
    """
    nearest = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * channels else nearest
