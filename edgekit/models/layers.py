"""The few pieces that the reference networks share. Not a place for networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor, nn

Block = Literal["separable", "residual"]


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


def block_maker(block: Block) -> Callable[[int, int, int], nn.Module]:
    """What makes a block of this kind of inputs, outputs and a stride; ValueError for a kind that is none."""
    if block not in get_args(Block):
        raise ValueError(f"got block {block!r}; known: {', '.join(get_args(Block))}")
    return depthwise_separable if block == "separable" else Residual


def check_sizes(name: str, width: int, depth: int) -> None:
    """ValueError for a network without channels, or with fewer than no blocks."""
    if width < 1 or depth < 0:
        raise ValueError(f"{name} needs a width from 1 and a depth from 0, got width {width}, depth {depth}")


def rounded(channels: float, divisor: int = 8) -> int:
    """Nearest multiple of `divisor`, never below it nor more than a tenth below `channels` (MobileNet's rule)."""
    nearest = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * channels else nearest
