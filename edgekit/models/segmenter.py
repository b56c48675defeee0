"""A small encoder and decoder for the class of each pixel: a reduced LinkNet (Chaurasia, Culurciello, VCIP 2017).

Blocks halve the image four times. In the decoder, a map is narrowed, upsampled by nearest neighbours, and added to the
encoder's map of that size. The grid of logits has half the height and width of the image, and the runner upsamples the
predicted classes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from edgekit.models.backbone import LITE0, Maps, feature_maps
from edgekit.models.layers import Block, block_maker, check_sizes, conv_bn_relu, image_channels

STRIDE = 16
"""Pixels of the image for one cell of the coarsest map, along each side."""
WIDER = (1, 2, 4, 4)
"""Channels of the encoder's maps as multiples of `width`, the finest map first."""


class Up(nn.Module):
    """A coarse map (N, coarse, h, w) and a finer one (N, fine, 2h, 2w) -> (N, fine, 2h, 2w)."""

    def __init__(self, coarse: int, fine: int, block: nn.Module) -> None:
        super().__init__()
        self.narrow, self.block = conv_bn_relu(coarse, fine, 1), block

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        doubled = functional.interpolate(self.narrow(coarse), scale_factor=2.0, mode="nearest")
        y: Tensor = self.block(doubled + fine)
        return y


class Segmenter(nn.Module):
    """(N, C, H, W) -> logits (N, classes, H / 2, W / 2)."""

    def __init__(self, downs: list[nn.Module], ups: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.downs, self.ups, self.head = nn.ModuleList(downs), nn.ModuleList(ups), head

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for down in self.downs:
            x = down(x)
            maps.append(x)
        for up, finer in zip(self.ups, maps[-2::-1], strict=True):
            x = up(x, finer)
        y: Tensor = self.head(x)
        return y


def segmenter(
    input_shape: tuple[int, ...], num_classes: int, width: int = 16, depth: int = 1, block: Block = "separable"
) -> nn.Module:
    """Build a network (N, C, H, W) -> masks, as logits (N, classes, H / 2, W / 2).

    H and W must be multiples of 16. The finest map has `width` channels and the coarsest 4 times as many. In the
    encoder, every map except the finest is made by a block that halves the size and `depth` blocks that keep it. With
    width 16 and 10 classes there are 33,562 parameters on 1 channel and 33,850 on 3.
    """
    channels = image_channels(input_shape)
    check_sizes("segmenter", width, depth)
    _check_sides(input_shape)
    make, widths = block_maker(block), [width * factor for factor in WIDER]

    def level(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(make(inputs, outputs, 2), *(make(outputs, outputs, 1) for _ in range(depth)))

    downs = [conv_bn_relu(channels, width, 3, 2), *map(level, widths, widths[1:])]
    ups: list[nn.Module] = [
        Up(coarse, fine, make(fine, fine, 1)) for coarse, fine in zip(widths[:0:-1], widths[-2::-1], strict=True)
    ]
    return Segmenter(downs, ups, nn.Conv2d(width, num_classes, 1))


class BackboneSegmenter(nn.Module):
    """As `Segmenter`, with a backbone as its encoder, whose maps have strides 2, 4, 8 and 16."""

    def __init__(self, backbone: Maps, ups: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.ups, self.head = backbone, nn.ModuleList(ups), head

    def forward(self, x: Tensor) -> Tensor:
        *finer_maps, y = self.backbone(x)
        for up, finer in zip(self.ups, reversed(finer_maps), strict=True):
            y = up(y, finer)
        logits: Tensor = self.head(y)
        return logits


def backbone_segmenter(
    input_shape: tuple[int, ...],
    num_classes: int,
    block: Block = "separable",
    backbone: str = LITE0,
    backbone_kwargs: dict[str, Any] | None = None,
) -> nn.Module:
    """Build a segmenter (N, C, H, W) -> masks, as `segmenter` does, on the first layers of a classification network.

    `backbone` is the builder of that network and `backbone_kwargs` are its arguments, by default those of the published
    EfficientNet-Lite0. With 10 classes and the defaults there are 709,818 parameters on 1
    channel and 710,394 on 3, and 5.2 M multiply-adds at 32x32x3.
    """
    image_channels(input_shape)
    _check_sides(input_shape)
    make = block_maker(block)
    maps = feature_maps(input_shape, (2, 4, 8, STRIDE), backbone, backbone_kwargs)
    widths = maps.channels
    ups: list[nn.Module] = [
        Up(coarse, fine, make(fine, fine, 1)) for coarse, fine in zip(widths[:0:-1], widths[-2::-1], strict=True)
    ]
    return BackboneSegmenter(maps, ups, nn.Conv2d(widths[0], num_classes, 1))


def _check_sides(input_shape: tuple[int, ...]) -> None:
    if any(side % STRIDE for side in input_shape[1:]):
        height, width = input_shape[1:]
        raise ValueError(f"height and width must be multiples of {STRIDE}, got {height} and {width}")
