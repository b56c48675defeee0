"""MobileNetV2 (Sandler et al. 2018): inverted residuals with linear bottlenecks.

With alpha 1, last 1280 and images of 224x224 it is the network of the paper, with 3,504,872 parameters for 1,000
classes. The first strides are 1 for small images (`layers.strides_for`). ReLU replaces
the paper's ReLU6, because every exporter fuses it and int8 then needs no separate clip.
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import InvertedResidual, conv_bn_relu, image_channels, round_channels, strides_for

BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, repeats, first stride): table 2 of the paper."""


def mobilenet_v2(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 0.35,
    last: int = 640,
    stem_stride: int | None = None,
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer except the last 1x1 convolution, which has `last` channels. With
    `stem_stride`, the first layer has this stride and the blocks divide height and width by 8. By default, the size of
    the image decides about all strides, and those for 224x224 are the paper's. With alpha 0.35, last 640 and 10 classes
    there are 329,290 parameters on 1 channel and 329,578 on 3, and 14.5 M multiply-adds at 32x32x3.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    stem, *firsts = strides_for(input_shape, (2, *(first for *_, first in BLOCKS)), stem_stride=stem_stride)
    inputs = round_channels(32 * alpha)
    layers: list[nn.Module] = [conv_bn_relu(image_channels(input_shape), inputs, 3, stem)]
    for (expansion, channels, repeats, _), first in zip(BLOCKS, firsts, strict=True):
        outputs = round_channels(channels * alpha)
        for index in range(repeats):
            layers.append(InvertedResidual(inputs, outputs, first if index == 0 else 1, inputs * expansion))
            inputs = outputs
    layers.append(conv_bn_relu(inputs, last, 1))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, num_classes))
