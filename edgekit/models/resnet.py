"""Residual networks (He et al. 2015): those for CIFAR (section 4.2), MLPerf Tiny's ResNet-8, and ResNet-18.

Shortcuts that change shape are 1x1 convolutions (option B). Parameter counts are for 10 classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from edgekit.models.layers import conv_bn, conv_bn_relu, default_reduction, image_channels, strides_for


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; with `bias`, the convolutions have biases, as those of MLPerf Tiny do."""

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool = False, shortcut_norm: bool = True) -> None:
        super().__init__()
        self.first = conv_bn_relu(inputs, outputs, 3, stride, bias=bias)
        self.second = conv_bn(outputs, outputs, 3, bias=bias)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            plain = nn.Conv2d(inputs, outputs, 1, stride, bias=bias)
            self.shortcut = conv_bn(inputs, outputs, 1, stride, bias=bias) if shortcut_norm else plain
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.second(self.first(x)) + self.shortcut(x))


class ResNet(nn.Module):
    """(N, C, H, W) -> logits (N, num_classes).

    The first group of blocks has the `width` of the stem, and each further group twice as many channels as the one
    before. The first block of a group has the group's stride.
    """

    def __init__(
        self,
        stem: nn.Module,
        num_classes: int,
        blocks: int,
        width: int,
        strides: Sequence[int] = (1, 2, 2),
        **block: bool,
    ) -> None:
        super().__init__()
        self.stem = stem
        layers: list[nn.Module] = []
        inputs = width
        for group, stride in enumerate(strides):
            outputs = width * 2**group
            for index in range(blocks):
                layers.append(BasicBlock(inputs, outputs, 1 if index else stride, **block))
                inputs = outputs
        self.blocks = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flatten(self.pool(self.blocks(self.stem(x)))))
        return logits


def resnet(
    input_shape: tuple[int, ...],
    num_classes: int,
    depth: int = 20,
    width: int = 16,
    stem_stride: int | None = None,
    strides: list[int] | None = None,
) -> nn.Module:
    """Build a CIFAR ResNet of `depth` layers in groups; each group has twice as many channels as the one before.

    The first group has `width` channels. `strides` has one entry for each group, by default the paper's 1, 2, 2.
    `stem_stride` is by default 1 as in the paper, and 2 for images of 64x64 and larger. `depth` must be 2 plus a
    multiple of twice the number of groups. With depth 20 and width 16 there are 272,186 parameters on 1 channel and
    272,474 on 3, and 40.8 M multiply-adds at 32x32x3.
    """
    groups = [1, 2, 2] if strides is None else list(strides)
    if not groups:
        raise ValueError("strides needs at least one group, got none")
    step = 2 * len(groups)
    if depth < 2 + step or (depth - 2) % step:
        allowed = ", ".join(str(2 + step * blocks) for blocks in (1, 2, 3, 4, 5))
        raise ValueError(f"depth must be {step}n+2 ({allowed}, ...), got {depth}")
    return ResNet(_stem(input_shape, width, stem_stride), num_classes, (depth - 2) // step, width, groups)


def resnet8(
    input_shape: tuple[int, ...], num_classes: int, width: int = 16, stem_stride: int | None = None
) -> nn.Module:
    """Build MLPerf Tiny's ResNet-8, which has biased convolutions and shortcuts without normalisation.

    `stem_stride` is by default 1 as in MLPerf Tiny, and 2 for images of 64x64 and larger. With width 16 there are
    77,898 parameters on 1 channel and 78,186 on 3 (Keras reports 78,666, because it includes the 480 running
    statistics), and 12.5 M multiply-adds at 32x32x3.
    """
    stem = _stem(input_shape, width, stem_stride, bias=True)
    return ResNet(stem, num_classes, 1, width, bias=True, shortcut_norm=False)


def _stem(input_shape: tuple[int, ...], width: int, stride: int | None, bias: bool = False) -> nn.Module:
    if stride is None:
        stride = 1 if default_reduction(input_shape) == 8 else 2
    return conv_bn_relu(image_channels(input_shape), width, 3, stride, bias=bias)


def resnet18(
    input_shape: tuple[int, ...], num_classes: int, width: int = 64, reduction: int | None = None
) -> nn.Module:
    """Build ResNet-18, which has four groups of two blocks; the first group has `width` channels.

    `reduction` divides height and width; by default, the size of the image decides (`layers.default_reduction`). With
    width 64 and images of 224x224, this is the network of table 1 of the paper, with 11,689,512 parameters for 1,000
    classes: before the blocks come a 7x7 convolution of stride 2 and a 3x3 maximum of stride 2. With a reduction of 16,
    the convolution is 3x3 and has stride 1; with 8 or less, there is no maximum either, as in networks for CIFAR. For
    10 classes, this form has 11,172,810 parameters on 1 channel and 11,173,962 on 3, and 555.4 M multiply-adds at
    32x32x3.
    """
    stem_stride, pool_stride, *strides = strides_for(input_shape, (2, 2, 1, 2, 2, 2), reduction)
    stem = conv_bn_relu(image_channels(input_shape), width, 7 if stem_stride == 2 else 3, stem_stride)
    if pool_stride == 2:
        stem.append(nn.MaxPool2d(3, 2, padding=1))
    return ResNet(stem, num_classes, 2, width, strides)
