"""DS-CNN: one convolution, then depthwise separable blocks of one width (Zhang et al. 2017, "Hello Edge")."""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import conv_bn_relu, depthwise_separable, image_channels


def ds_cnn(
    input_shape: tuple[int, ...],
    num_classes: int,
    width: int = 64,
    blocks: int = 4,
    stem_stride: int = 2,
    block_strides: list[int] | None = None,
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `block_strides` has one entry for each block; by default all are 1, as in the paper. With width 64, 4 blocks and
    10 classes there are 21,066 parameters on 1 channel and 22,218 on 3, and 5.2 M multiply-adds at 32x32x3.
    """
    strides = [1] * blocks if block_strides is None else list(block_strides)
    if len(strides) != blocks:
        raise ValueError(f"block_strides needs one stride per block: {blocks} blocks, got {strides}")
    return nn.Sequential(
        conv_bn_relu(image_channels(input_shape), width, 3, stem_stride),
        *(depthwise_separable(width, width, stride) for stride in strides),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )
