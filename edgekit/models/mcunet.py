"""A network like those of MCUNet (Lin et al. 2020, "MCUNet: Tiny Deep Learning on IoT Devices").

It is not one of the published networks, which come from a search under a memory limit. Its blocks, kernels and
expansions are chosen by hand from the same space (kernels 3 to 7, expansions 3 to 6). As in the published networks, the
early blocks are narrow, because the largest maps need the most memory, and wide kernels are used where maps are small.
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import (
    InvertedResidual,
    check_multipliers,
    classifier,
    conv_bn_relu,
    image_channels,
    round_channels,
    strides_for,
)

STEM = 16
BLOCKS = (
    (3, 1, 8, 1),
    (5, 3, 16, 2),
    (3, 4, 16, 1),
    (5, 4, 24, 2),
    (7, 4, 24, 1),
    (5, 5, 40, 2),
    (7, 4, 40, 1),
    (5, 4, 48, 1),
    (7, 5, 96, 2),
    (5, 4, 96, 1),
    (7, 6, 160, 1),
)
"""(kernel, expansion, channels, stride)."""


def mcunet(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 1.0,
    reduction: int | None = None,
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of every layer. `reduction` divides height and width; by default, the size of
    the image decides (`layers.default_reduction`). With alpha 1 and 10 classes there are 382,778 parameters on 1
    channel and 383,066 on 3, and 18.0 M multiply-adds at 32x32x3.
    """
    check_multipliers("mcunet", alpha=alpha)
    stem_stride, *strides = strides_for(input_shape, (2, *(block[-1] for block in BLOCKS)), reduction)
    inputs = round_channels(STEM * alpha)
    layers: list[nn.Module] = [conv_bn_relu(image_channels(input_shape), inputs, 3, stem_stride)]
    for (kernel, expansion, channels, _), stride in zip(BLOCKS, strides, strict=True):
        outputs = round_channels(channels * alpha)
        layers.append(InvertedResidual(inputs, outputs, stride, inputs * expansion, kernel))
        inputs = outputs
    return nn.Sequential(*layers, *classifier(inputs, num_classes))
