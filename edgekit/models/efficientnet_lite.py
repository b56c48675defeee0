"""EfficientNet-Lite (Tan and Le 2019; Liu 2020, github.com/tensorflow/tpu): EfficientNet adapted to small devices.

It uses ReLU6 instead of swish, and no squeeze-excite. For 1,000 classes, `efficientnet_lite0` with alpha 1, last 1280
and images of 224x224 is the published network, with 4,652,008 parameters. `efficientnet_lite1` is the published network
for 240x240, with 5,416,680 parameters, and `efficientnet_lite2` for 260x260, with 6,092,072. Their blocks are repeated
more often, except the first and the last one, and those of Lite2 are also wider. The stem and the last convolution are
those of Lite0.

The published weights come from TensorFlow. A network with `padding="tensorflow"` computes the same with them.
"""

from __future__ import annotations

import math

from torch import nn

from edgekit.models.layers import (
    InvertedResidual,
    Padding,
    check_multipliers,
    classifier,
    conv_bn_act,
    image_channels,
    round_channels,
    set_padding,
    strides_for,
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
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 0.25,
    last: int = 320,
    reduction: int | None = None,
    padding: Padding = "symmetric",
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the last 1x1 convolution, which has `last` channels.
    `reduction` divides height and width; by default, the size of the image decides (`layers.default_reduction`).
    `padding` "tensorflow" is for weights that were trained with TensorFlow (`layers.set_padding`). With alpha 0.25,
    last 320 and 10 classes there are 282,010 parameters on 1 channel and 282,154 on 3, and 13.0 M multiply-adds at
    32x32x3.
    """
    check_multipliers("efficientnet_lite0", alpha=alpha, last=last)
    return _efficientnet_lite(input_shape, num_classes, alpha, last, reduction, padding)


def efficientnet_lite1(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 1.0,
    last: int = 1280,
    reduction: int | None = None,
    padding: Padding = "symmetric",
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits; the arguments are those of `efficientnet_lite0`.

    With alpha 1, last 1280 and 10 classes there are 4,147,914 parameters on 1 channel and 4,148,490 on 3, and 153.8 M
    multiply-adds at 32x32x3.
    """
    check_multipliers("efficientnet_lite1", alpha=alpha, last=last)
    return _efficientnet_lite(input_shape, num_classes, alpha, last, reduction, padding, depth=1.1)


def efficientnet_lite2(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 1.0,
    last: int = 1280,
    reduction: int | None = None,
    padding: Padding = "symmetric",
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits; the arguments are those of `efficientnet_lite0`.

    With alpha 1, last 1280 and 10 classes there are 4,823,306 parameters on 1 channel and 4,823,882 on 3, and 178.0 M
    multiply-adds at 32x32x3.
    """
    check_multipliers("efficientnet_lite2", alpha=alpha, last=last)
    return _efficientnet_lite(input_shape, num_classes, alpha, last, reduction, padding, depth=1.2, width=1.1)


def _efficientnet_lite(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float,
    last: int,
    reduction: int | None,
    padding: Padding,
    depth: float = 1.0,
    width: float = 1.0,
) -> nn.Module:
    stem_stride, *firsts = strides_for(input_shape, (2, *(block[-1] for block in BLOCKS)), reduction)
    inputs = round_channels(STEM * alpha)
    layers: list[nn.Module] = [conv_bn_act(image_channels(input_shape), inputs, 3, stem_stride, activation=nn.ReLU6)]
    for (kernel, expansion, channels, repeats, _), first in zip(BLOCKS, firsts, strict=True):
        outputs = round_channels(channels * width * alpha)
        scaled = repeats if channels in (BLOCKS[0][2], BLOCKS[-1][2]) else math.ceil(repeats * depth)
        for index in range(scaled):
            stride, hidden = 1 if index else first, inputs * expansion
            layers.append(InvertedResidual(inputs, outputs, stride, hidden, kernel, nn.ReLU6))
            inputs = outputs
    layers.append(conv_bn_act(inputs, last, 1, activation=nn.ReLU6))
    return set_padding(nn.Sequential(*layers, *classifier(last, num_classes)), padding, input_shape)
