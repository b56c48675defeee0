"""Layers and helpers that the reference networks share."""

from __future__ import annotations

import math
from collections import OrderedDict
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


def default_reduction(input_shape: tuple[int, ...]) -> int:
    """Return by how much a network for images divides height and width unless its user says otherwise.

    The shorter side decides: 8 below 64 pixels, 16 below 128 pixels, and from there on 32, as in the papers, whose
    images have 224x224. For sides from 32, the last map then has at least 4 pixels on each side. Raises ValueError if
    the shape is not that of an image.
    """
    image_channels(input_shape)
    side = min(input_shape[1:])
    return 8 if side < 64 else 16 if side < 128 else 32


def strides_for(
    input_shape: tuple[int, ...], strides: Sequence[int], reduction: int | None = None, stem_stride: int | None = None
) -> list[int]:
    """Return the strides of a network for images of `input_shape`, from those of its published form.

    `reduction` is by how much it divides height and width, by default that of `default_reduction`. With `stem_stride`,
    the first stride is this, and the others divide by 8. Raises ValueError as `reduce_strides` does.
    """
    if stem_stride is not None:
        return [stem_stride, *reduce_strides(strides[1:], 8)]
    return reduce_strides(strides, default_reduction(input_shape) if reduction is None else reduction)


Padding = Literal["symmetric", "tensorflow"]
TENSORFLOW_EPS = 1e-3
"""What TensorFlow's batch normalisation adds to the variance; PyTorch's adds 1e-5."""


def set_padding(network: nn.Module, padding: Padding, input_shape: tuple[int, ...]) -> nn.Module:
    """Give a network of odd kernels the padding of the framework that its weights come from, in place, and return it.

    "symmetric" leaves the network as it is. With "tensorflow", it computes what the same layers compute in TensorFlow
    with "SAME" padding, for images of `input_shape`: if the padding of a strided convolution is an odd number of
    pixels, the bottom and right get one more than the top and left, and batch norms use `TENSORFLOW_EPS`. The names of
    tensors stay the same. The strided convolutions must come one after the other, each as the first layer of a
    Sequential. Raises ValueError if there is no such padding.
    """
    if padding not in get_args(Padding):
        raise ValueError(f"got padding {padding!r}; known: {', '.join(get_args(Padding))}")
    if padding == "symmetric":
        return network
    sides = input_shape[1:]
    for name, layer in list(network.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = TENSORFLOW_EPS
        elif isinstance(layer, nn.Conv2d) and layer.stride != (1, 1):
            (top, bottom), (left, right) = map(same_padding, sides, layer.kernel_size, layer.stride)
            if (top, left) != (bottom, right):
                layer.padding, block = (0, 0), name.rpartition(".")[0]
                layers: OrderedDict[str, nn.Module] = OrderedDict(pad=nn.ZeroPad2d((left, right, top, bottom)))
                layers.update(network.get_submodule(block).named_children())
                network.set_submodule(block, nn.Sequential(layers))
            sides = tuple(-(-side // stride) for side, stride in zip(sides, layer.stride, strict=True))
    return network


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many pixels TensorFlow's "SAME" padding adds before and after `size` pixels."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


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
