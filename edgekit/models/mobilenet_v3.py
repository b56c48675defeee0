"""MobileNetV3-Small (Howard et al. 2019, "Searching for MobileNetV3"): hard-swish and squeeze-excite.

With alpha 1, last 1024 and reduction 32 it is the network of table 2, with 2,542,856 parameters for 1,000 classes.
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import (
    InvertedResidual,
    check_multipliers,
    conv_bn_act,
    image_channels,
    reduce_strides,
    round_channels,
)

STEM, TOP = 16, 576
RELU, HARD_SWISH = nn.ReLU, nn.Hardswish
BLOCKS = (
    (3, 16, 16, True, RELU, 2),
    (3, 72, 24, False, RELU, 2),
    (3, 88, 24, False, RELU, 1),
    (5, 96, 40, True, HARD_SWISH, 2),
    (5, 240, 40, True, HARD_SWISH, 1),
    (5, 240, 40, True, HARD_SWISH, 1),
    (5, 120, 48, True, HARD_SWISH, 1),
    (5, 144, 48, True, HARD_SWISH, 1),
    (5, 288, 96, True, HARD_SWISH, 2),
    (5, 576, 96, True, HARD_SWISH, 1),
    (5, 576, 96, True, HARD_SWISH, 1),
)
"""(kernel, hidden channels, channels, squeeze-excite, activation, stride)."""


def mobilenet_v3_small(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.5, last: int = 256, reduction: int = 8
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the hidden dense layer at the end, which has `last` units.
    `reduction` divides height and width: use 8 for 32x32, 16 for 96x96 and 32 for 224x224. With alpha 0.5, last 256
    and 10 classes there are 332,706 parameters on 1 channel and 332,850 on 3, and 5.5 M multiply-adds at 32x32x3.
    """
    check_multipliers("mobilenet_v3_small", alpha=alpha, last=last)
    stem_stride, *strides = reduce_strides((2, *(block[-1] for block in BLOCKS)), reduction)
    inputs = round_channels(STEM * alpha)
    layers: list[nn.Module] = [
        conv_bn_act(image_channels(input_shape), inputs, 3, stem_stride, activation=nn.Hardswish)
    ]
    for (kernel, hidden_channels, channels, has_squeeze, activation, _), stride in zip(BLOCKS, strides, strict=True):
        hidden, outputs = round_channels(hidden_channels * alpha), round_channels(channels * alpha)
        squeezed = round_channels(hidden / 4) if has_squeeze else 0
        layers.append(InvertedResidual(inputs, outputs, stride, hidden, kernel, activation, squeezed))
        inputs = outputs
    top = round_channels(TOP * alpha)
    layers.append(conv_bn_act(inputs, top, 1, activation=nn.Hardswish))
    hidden_layer = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(top, last), nn.Hardswish()]
    return nn.Sequential(*layers, *hidden_layer, nn.Linear(last, num_classes))
