"""MobileNetV1 (Howard et al. 2017). With alpha 1 and images of 224x224 it is the network of the paper.

It then has 4,231,976 parameters for 1,000 classes. The first strides are 1 for small images (`layers.strides_for`).
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import conv_bn_relu, depthwise_separable, image_channels, round_channels, strides_for

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1))
"""(channels at alpha 1, stride) of each depthwise separable block: table 1 of the paper."""


def mobilenet_v1(
    input_shape: tuple[int, ...], num_classes: int, alpha: float = 0.25, stem_stride: int | None = None
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits; `alpha` multiplies the channels of every layer.

    With `stem_stride`, the first layer has this stride and the blocks divide height and width by 8. By default, the
    size of the image decides about all strides, and those for 224x224 are the paper's.

    With alpha 0.25 and 10 classes there are 215,498 parameters on 1 channel and 215,642 on 3, and 12.0 M multiply-adds
    at 32x32x3.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    stem, *strides = strides_for(input_shape, (2, *(stride for _, stride in BLOCKS)), stem_stride=stem_stride)
    inputs = round_channels(32 * alpha)
    layers: list[nn.Module] = [conv_bn_relu(image_channels(input_shape), inputs, 3, stem)]
    for (channels, _), stride in zip(BLOCKS, strides, strict=True):
        outputs = round_channels(channels * alpha)
        layers.append(depthwise_separable(inputs, outputs, stride))
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes))
