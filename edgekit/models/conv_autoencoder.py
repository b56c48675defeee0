"""A convolutional autoencoder for images. Images unlike those of its training lose details and are reconstructed badly.

It follows Masci et al. 2011, "Stacked convolutional auto-encoders for hierarchical feature extraction", with batch
normalisation. It upsamples by nearest neighbours followed by a convolution (Odena et al. 2016), because every
interpreter supports both.
"""

from __future__ import annotations

from torch import nn

from edgekit.models.layers import image_channels

GRID = 4
"""The shorter side of the map in the bottleneck has at least this many rows or columns."""


def conv_autoencoder(input_shape: tuple[int, ...], width: int = 16, bottleneck: int = 4) -> nn.Module:
    """Build an autoencoder (N, C, H, W) -> (N, C, H, W).

    The bottleneck has `bottleneck` channels, and its shorter side has 4 to 6 rows or columns. For images of
    (1, 16, 16) the bottleneck holds 64 numbers, and there are 10,341 parameters.
    """
    channels = image_channels(input_shape)
    sizes = [(input_shape[1], input_shape[2])]
    while (min(sizes[-1]) + 1) // 2 >= GRID:
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    layers: list[nn.Module] = [*_block(channels, width)]
    for _ in sizes[1:]:
        layers += _block(width, width, stride=2)
    layers += [nn.Conv2d(width, bottleneck, 1), *_block(bottleneck, width)]
    for size in reversed(sizes[:-1]):
        layers += [nn.Upsample(size=size, mode="nearest"), *_block(width, width)]
    return nn.Sequential(*layers, nn.Conv2d(width, channels, 3, padding=1))


def _block(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
