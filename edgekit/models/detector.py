"""A one-stage detector without anchors for small images: a reduced FCOS (Tian et al., ICCV 2019) on two grids.

A chain of blocks halves the image three times for the fine grid, and once more for the coarse grid. Each grid has its
own head, with one convolution for the distances to the sides of a box and one for the logits of the classes. Boxes and
logits are separate outputs, because in a joint int8 tensor both would have the same scale.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.models.backbone import LITE0, Maps, feature_maps
from edgekit.models.layers import Block, block_maker, check_sizes, conv_bn_relu, depthwise_separable, image_channels
from edgekit.runner.boxes import BOX_SIDES

STRIDE = 16
PRIOR = 0.01
"""The probability that an untrained network returns for each class (Lin et al., ICCV 2017)."""
REACH = 1.5
"""The distance to each side of a box that an untrained network returns, in strides."""


class Head(nn.Module):
    """The outputs for one grid: boxes (N, cells, 4) and logits (N, cells, classes)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.boxes, self.scores = nn.Conv2d(inputs, BOX_SIDES, 1), nn.Conv2d(inputs, classes, 1)
        for layer, bias in ((self.boxes, REACH), (self.scores, math.log(PRIOR / (1 - PRIOR)))):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _rows(self.boxes(x)), _rows(self.scores(x))


class Detector(nn.Module):
    """(N, C, H, W) -> boxes (N, points, 4) in strides, and logits (N, points, classes); the finer grid first."""

    def __init__(self, stem: nn.Module, fine: nn.Module, coarse: nn.Module, heads: tuple[Head, Head]) -> None:
        super().__init__()
        self.stem, self.fine, self.coarse = stem, fine, coarse
        self.fine_head, self.coarse_head = heads

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        boxes, scores = zip(self.fine_head(fine), self.coarse_head(coarse), strict=True)
        return torch.cat(boxes, dim=1), torch.cat(scores, dim=1)


def detector(
    input_shape: tuple[int, ...], num_classes: int, width: int = 16, depth: int = 2, block: Block = "separable"
) -> nn.Module:
    """Build a detector (N, C, H, W) -> boxes and logits on grids of 8 and 16 pixels.

    H and W must be multiples of 16. The first block has `width` channels and the last 8 times as many. For each grid, a
    block halves the image, and `depth` blocks that keep its size follow. With width 16 and 10 classes there are 62,716
    parameters on 1 channel and 63,004 on 3.
    """
    channels = image_channels(input_shape)
    check_sizes("detector", width, depth)
    _check_sides(input_shape)
    make = block_maker(block)

    def chain(inputs: int, outputs: int) -> list[nn.Module]:
        return [make(inputs, outputs, 2), *(make(outputs, outputs, 1) for _ in range(depth))]

    stem = nn.Sequential(conv_bn_relu(channels, width, 3, 2), make(width, 2 * width, 2), make(2 * width, 2 * width, 1))
    fine = nn.Sequential(*chain(2 * width, 4 * width))
    coarse = nn.Sequential(*chain(4 * width, 8 * width))
    return Detector(stem, fine, coarse, (Head(4 * width, num_classes), Head(8 * width, num_classes)))


class BackboneDetector(nn.Module):
    """As `Detector`, with the maps of a backbone of strides 8 and 16, and the coarse one added to the fine one."""

    def __init__(self, backbone: Maps, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        fine, coarse = backbone.channels
        self.fine_lateral, self.coarse_lateral = conv_bn_relu(fine, width, 1), conv_bn_relu(coarse, width, 1)
        self.fine, self.coarse = depthwise_separable(width, width), depthwise_separable(width, width)
        self.fine_head, self.coarse_head = Head(width, classes), Head(width, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine_map, coarse_map = self.backbone(x)
        coarse = self.coarse_lateral(coarse_map)
        doubled = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        fine = self.fine(self.fine_lateral(fine_map) + doubled)
        boxes, scores = zip(self.fine_head(fine), self.coarse_head(self.coarse(coarse)), strict=True)
        return torch.cat(boxes, dim=1), torch.cat(scores, dim=1)


def backbone_detector(
    input_shape: tuple[int, ...],
    num_classes: int,
    width: int = 64,
    backbone: str = LITE0,
    backbone_kwargs: dict[str, Any] | None = None,
) -> nn.Module:
    """Build a detector (N, C, H, W) -> boxes and logits, as `detector` does, on the layers of a classification network.

    `backbone` is the builder of that network and `backbone_kwargs` are its arguments, by default those of the published
    EfficientNet-Lite0. `width` is the number of channels of both grids. With 10 classes and the defaults there are
    721,852 parameters on 1 channel and 722,428 on 3, and 5.1 M multiply-adds at 32x32x3.
    """
    image_channels(input_shape)
    check_sizes("backbone_detector", width, 0)
    _check_sides(input_shape)
    return BackboneDetector(
        feature_maps(input_shape, (STRIDE // 2, STRIDE), backbone, backbone_kwargs), width, num_classes
    )


def _check_sides(input_shape: tuple[int, ...]) -> None:
    if any(side % STRIDE for side in input_shape[1:]):
        height, width = input_shape[1:]
        raise ValueError(f"height and width must be multiples of {STRIDE}, got {height} and {width}")


def _rows(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H * W, C)."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)
