"""EfficientNet-Lite0 (Tan and Le 2019; Liu 2020, github.com/tensorflow/tpu): EfficientNet-B0 adapted to small devices.

It uses ReLU6 instead of swish, and no squeeze-excite. With alpha 1, last 1280 and reduction 32 it is the published
network, with 4,652,008 parameters for 1,000 classes.
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import (
    InvertedResidual,
    check_multipliers,
    classifier,
    conv_bn_act,
    image_channels,
    reduce_strides,
    round_channels,
)

STEM = 32
BLOCKS = (
    (3, 1, 16, 1, 1),
    (3, 6, 24, 2, 2),
    (5, 6, 40, 2, 2),
    (3, 6, 80, 3, 2),
    (5, 6, 112, 3, 1),
    (5, 6, 192, 4, 2),
    (3, 6, 320, 1, 1),
)
"""(kernel, expansion, channels, repeats, first stride)."""


def efficientnet_lite0(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.25, last: int = 320, reduction: int = 8
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the last 1x1 convolution, which has `last` channels.
    `reduction` divides height and width: use 8 for 32x32, 16 for 96x96 and 32 for 224x224. With alpha 0.25, last 320
    and 10 classes there are 282,010 parameters on 1 channel and 282,154 on 3, and 13.0 M multiply-adds at 32x32x3.
    """
    check_multipliers("efficientnet_lite0", alpha=alpha, last=last)
    stem_stride, *firsts = reduce_strides((2, *(block[-1] for block in BLOCKS)), reduction)
    inputs = round_channels(STEM * alpha)
    layers: list[nn.Module] = [conv_bn_act(image_channels(input_shape), inputs, 3, stem_stride, activation=nn.ReLU6)]
    for (kernel, expansion, channels, repeats, _), first in zip(BLOCKS, firsts, strict=True):
        outputs = round_channels(channels * alpha)
        for index in range(repeats):
            stride, hidden = 1 if index else first, inputs * expansion
            layers.append(InvertedResidual(inputs, outputs, stride, hidden, kernel, nn.ReLU6))
            inputs = outputs
    layers.append(conv_bn_act(inputs, last, 1, activation=nn.ReLU6))
    return nn.Sequential(*layers, *classifier(last, num_classes))
