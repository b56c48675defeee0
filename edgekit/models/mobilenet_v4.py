"""MobileNetV4-Conv-Small (Qin et al. 2024, "MobileNetV4: Universal Models for the Mobile Ecosystem").

With alpha 1, last 1280 and images of 224x224 it is the network of the paper, with 3,774,024 parameters for 1,000
classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from edgekit.models.layers import (
    check_multipliers,
    conv_bn,
    conv_bn_relu,
    image_channels,
    round_channels,
    strides_for,
)

CONVOLUTIONS = ((32, 3, 2), (32, 3, 2), (32, 1, 1), (96, 3, 2), (64, 1, 1))
"""(channels, kernel, stride) of the layers before the first block."""
BLOCKS = (
    (5, 5, 96, 3, 2),
    *((0, 3, 96, 2, 1),) * 4,
    (3, 0, 96, 4, 1),
    (3, 3, 128, 6, 2),
    (5, 5, 128, 4, 1),
    (0, 5, 128, 4, 1),
    (0, 5, 128, 3, 1),
    *((0, 3, 128, 4, 1),) * 2,
)
"""(kernel before the expansion, kernel after it, channels, expansion, stride); kernel 0 means no convolution."""
TOP = 960


class UniversalInvertedBottleneck(nn.Module):
    """An inverted residual with a depthwise convolution before the expansion, after it, in both places or in neither.

    In this order, these forms are a ConvNext block, the block of MobileNetV2, "extra depthwise" and a feed-forward
    network.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, hidden: int, kernel_before: int, kernel_after: int
    ) -> None:
        super().__init__()
        first = (
            [conv_bn(inputs, inputs, kernel_before, 1 if kernel_after else stride, groups=inputs)]
            if kernel_before
            else []
        )
        second = [conv_bn_relu(hidden, hidden, kernel_after, stride, groups=hidden)] if kernel_after else []
        self.body = nn.Sequential(*first, conv_bn_relu(inputs, hidden, 1), *second, conv_bn(hidden, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


def mobilenet_v4_small(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.35, last: int = 256, reduction: int | None = None
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the hidden layer at the end, which has `last` units.
    `reduction` divides height and width; by default, the size of the image decides (`layers.default_reduction`). With
    alpha 0.35, last 256 and 10 classes there are 277,786 parameters on 1 channel and 278,074 on 3, and 9.7 M
    multiply-adds at 32x32x3.
    """
    check_multipliers("mobilenet_v4_small", alpha=alpha, last=last)
    strides = strides_for(input_shape, [stride for *_, stride in (*CONVOLUTIONS, *BLOCKS)], reduction)
    inputs, layers = image_channels(input_shape), list[nn.Module]()
    for (channels, kernel, _), stride in zip(CONVOLUTIONS, strides, strict=False):
        outputs = round_channels(channels * alpha)
        layers.append(conv_bn_relu(inputs, outputs, kernel, stride))
        inputs = outputs
    for (kernel_before, kernel_after, channels, expansion, _), stride in zip(
        BLOCKS, strides[len(CONVOLUTIONS) :], strict=True
    ):
        outputs, hidden = round_channels(channels * alpha), round_channels(inputs * expansion)
        layers.append(UniversalInvertedBottleneck(inputs, outputs, stride, hidden, kernel_before, kernel_after))
        inputs = outputs
    top = round_channels(TOP * alpha)
    head = [conv_bn_relu(inputs, top, 1), nn.AdaptiveAvgPool2d(1), conv_bn_relu(top, last, 1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(last, num_classes))
