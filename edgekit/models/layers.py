"""The few pieces that the reference networks share. Not a place for networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from torch import Tensor, nn

Block = Literal["separable", "residual"]
Activation = Callable[[], nn.Module]


def image_channels(input_shape: tuple[int, ...]) -> int:
    """C of (C, H, W); ValueError for anything that is not an image."""
    if len(input_shape) != 3:
        raise ValueError(f"needs an image as input, shape (channels, height, width), got {tuple(input_shape)}")
    return input_shape[0]


def window_channels(input_shape: tuple[int, ...]) -> int:
    """C of (time, C); ValueError for anything that is not a window."""
    if len(input_shape) != 2:
        raise ValueError(f"needs windows as input, shape (time, channels), got {tuple(input_shape)}")
    return input_shape[1]


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """Convolution and batch normalisation; output size is ceil(size / stride) for odd kernels."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=bias)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def conv_bn_relu(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, stride, groups, bias), nn.ReLU())


def conv_bn_act(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: Activation = nn.ReLU
) -> nn.Sequential:
    """Convolution, batch normalisation, and an activation of this kind."""
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, stride, groups), activation())


def depthwise_separable(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3x3 convolution per channel, then a 1x1 convolution across channels (Howard et al. 2017)."""
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
    """Each channel times a weight in 0 to 1 that the means of all channels decide (Hu et al. 2018; Howard et al. 2019).

    The weight is a hard sigmoid, of two 1x1 convolutions with `squeezed` channels between them.
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
    """Widen by 1x1, filter each channel, narrow by 1x1 without activation; added to the input if shapes agree.

    Sandler et al. 2018. `squeezed`: channels of a squeeze-excite behind the filter; 0: there is none.
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
    """The mean over height and width, and a dense layer: (N, inputs, H, W) -> logits."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes)]


def reduce_strides(strides: Sequence[int], reduction: int) -> list[int]:
    """A network's strides with the first ones set to 1, so that it divides height and width by `reduction`.

    Small pictures keep their details so: of five strides of 2, made for 224x224, 32x32 wants the last three.
    """
    found, left = list(strides), max(1, reduction)
    for place in reversed(range(len(found))):
        found[place] = min(found[place], left)
        left //= found[place]
    if math.prod(found) != reduction:
        raise ValueError(f"reduction must be a power of 2 from 1 to {math.prod(strides)}, got {reduction}")
    return found


def check_multipliers(name: str, **multiples: float) -> None:
    """ValueError for a multiple of channels that leaves none."""
    for word, value in multiples.items():
        if not value > 0:
            raise ValueError(f"{name} needs {word} above 0, got {value}")


def block_maker(block: Block) -> Callable[[int, int, int], nn.Module]:
    """What makes a block of this kind of inputs, outputs and a stride; ValueError for a kind that is none."""
    if block not in get_args(Block):
        raise ValueError(f"got block {block!r}; known: {', '.join(get_args(Block))}")
    return depthwise_separable if block == "separable" else Residual


def check_sizes(name: str, width: int, depth: int) -> None:
    """ValueError for a network without channels, or with fewer than no blocks."""
    if width < 1 or depth < 0:
        raise ValueError(f"{name} needs a width from 1 and a depth from 0, got width {width}, depth {depth}")


def round_channels(channels: float, divisor: int = 8) -> int:
    """Nearest multiple of `divisor`, never below it nor more than a tenth below `channels` (MobileNet's rule)."""
    nearest = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * channels else nearest
