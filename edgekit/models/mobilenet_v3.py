"""MobileNetV3 (Howard et al. 2019, "Searching for MobileNetV3"): hard-swish and squeeze-excite.

For images of 224x224 and 1,000 classes, `mobilenet_v3_large` is the network of table 1, with 5,483,032 parameters, and
`mobilenet_v3_small` with alpha 1 and last 1024 that of table 2, with 2,542,856 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from edgekit.models.layers import (
    Activation,
    InvertedResidual,
    check_multipliers,
    conv_bn_act,
    image_channels,
    round_channels,
    strides_for,
)

STEM = 16
RELU, HARD_SWISH = nn.ReLU, nn.Hardswish
Row = tuple[int, int, int, bool, Activation, int]
"""(kernel, hidden channels, channels, squeeze-excite, activation, stride)."""
LARGE: tuple[Row, ...] = (
    (3, 16, 16, False, RELU, 1),
    (3, 64, 24, False, RELU, 2),
    (3, 72, 24, False, RELU, 1),
    (5, 72, 40, True, RELU, 2),
    (5, 120, 40, True, RELU, 1),
    (5, 120, 40, True, RELU, 1),
    (3, 240, 80, False, HARD_SWISH, 2),
    (3, 200, 80, False, HARD_SWISH, 1),
    (3, 184, 80, False, HARD_SWISH, 1),
    (3, 184, 80, False, HARD_SWISH, 1),
    (3, 480, 112, True, HARD_SWISH, 1),
    (3, 672, 112, True, HARD_SWISH, 1),
    (5, 672, 160, True, HARD_SWISH, 2),
    (5, 960, 160, True, HARD_SWISH, 1),
    (5, 960, 160, True, HARD_SWISH, 1),
)
SMALL: tuple[Row, ...] = (
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


def mobilenet_v3_small(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.5, last: int = 256, reduction: int | None = None
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the hidden dense layer at the end, which has `last` units.
    `reduction` divides height and width; by default, the size of the image decides (`layers.default_reduction`). With
    alpha 0.5, last 256 and 10 classes there are 332,706 parameters on 1 channel and 332,850 on 3, and 5.5 M
    multiply-adds at 32x32x3.
    """
    check_multipliers("mobilenet_v3_small", alpha=alpha, last=last)
    return _mobilenet_v3(SMALL, input_shape, num_classes, alpha, last, reduction)


def mobilenet_v3_large(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 1.0, last: int = 1280, reduction: int | None = None
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits; the arguments are those of `mobilenet_v3_small`.

    With alpha 1, last 1280 and 10 classes there are 4,214,554 parameters on 1 channel and 4,214,842 on 3, and 66.5 M
    multiply-adds at 32x32x3.
    """
    check_multipliers("mobilenet_v3_large", alpha=alpha, last=last)
    return _mobilenet_v3(LARGE, input_shape, num_classes, alpha, last, reduction)


def _mobilenet_v3(
    blocks: Sequence[Row],
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float,
    last: int,
    reduction: int | None,
) -> nn.Module:
    stem_stride, *strides = strides_for(input_shape, (2, *(block[-1] for block in blocks)), reduction)
    inputs = round_channels(STEM * alpha)
    layers: list[nn.Module] = [
        conv_bn_act(image_channels(input_shape), inputs, 3, stem_stride, activation=nn.Hardswish)
    ]
    for (kernel, hidden_channels, channels, has_squeeze, activation, _), stride in zip(blocks, strides, strict=True):
        hidden, outputs = round_channels(hidden_channels * alpha), round_channels(channels * alpha)
        squeezed = round_channels(hidden / 4) if has_squeeze else 0
        layers.append(InvertedResidual(inputs, outputs, stride, hidden, kernel, activation, squeezed))
        inputs = outputs
    top = round_channels(blocks[-1][1] * alpha)
    layers.append(conv_bn_act(inputs, top, 1, activation=nn.Hardswish))
    hidden_layer = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(top, last), nn.Hardswish()]
    return nn.Sequential(*layers, *hidden_layer, nn.Linear(last, num_classes))
