"""MobileNetV1 (Howard et al. 2017) for 32x32 images: the first two strides of 2 in the paper's table 1 are 1 here."""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import conv_bn_relu, depthwise_separable, image_channels, round_channels

BLOCKS = ((64, 1), (128, 1), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1))
"""(channels at alpha 1, stride) of each depthwise separable block: table 1 of the paper, with other strides."""


def mobilenet_v1(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.25, stem_stride: int = 1
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits; `alpha` multiplies the channels of every layer.

    With alpha 0.25 and 10 classes there are 215,498 parameters on 1 channel and 215,642 on 3, and 12.0 M multiply-adds
    at 32x32x3.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    inputs = round_channels(32 * alpha)
    layers: list[nn.Module] = [conv_bn_relu(image_channels(input_shape), inputs, 3, stem_stride)]
    for channels, stride in BLOCKS:
        outputs = round_channels(channels * alpha)
        layers.append(depthwise_separable(inputs, outputs, stride))
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes))
