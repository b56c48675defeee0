"""A one-stage detector without anchors, for small pictures: FCOS (Tian et al., ICCV 2019) on two grids, cut down.

A chain of blocks halves the picture three times, and a fourth for the coarse grid. Each grid has a head of its own: one
convolution for the distances to the sides of a box, one for the logits of the classes. They are outputs of their own,
for in one tensor int8 would give both the same step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from edgekit.models.layers import Block, block_maker, check_sizes, conv_bn_relu, image_channels
from edgekit.runner.boxes import BOX_SIDES

STRIDE = 16
PRIOR = 0.01
"""The probability of a class that a fresh network gives (Lin et al., ICCV 2017)."""
REACH = 1.5
"""The distance to each side that it gives, in strides."""


class Head(nn.Module):
    """One grid's part of the outputs: (N, cells, 4) and (N, cells, classes)."""

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
    """(N, C, H, W) -> boxes and logits on grids of 8 and 16 pixels; H and W are multiples of 16.

    `width` channels in the first block and 8 times as many in the last; `depth` more blocks for each grid.
    width 16, 10 classes: 62,716 parameters on 1 channel, 63,004 on 3.
    """
    channels = image_channels(input_shape)
    check_sizes("detector", width, depth)
    if any(side % STRIDE for side in input_shape[1:]):
        height, width_px = input_shape[1:]
        raise ValueError(f"height and width must be multiples of {STRIDE}, got {height} and {width_px}")
    make = block_maker(block)

    def chain(inputs: int, outputs: int) -> list[nn.Module]:
        return [make(inputs, outputs, 2), *(make(outputs, outputs, 1) for _ in range(depth))]

    stem = nn.Sequential(conv_bn_relu(channels, width, 3, 2), make(width, 2 * width, 2), make(2 * width, 2 * width, 1))
    fine = nn.Sequential(*chain(2 * width, 4 * width))
    coarse = nn.Sequential(*chain(4 * width, 8 * width))
    return Detector(stem, fine, coarse, (Head(4 * width, num_classes), Head(8 * width, num_classes)))


def _rows(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H * W, C)."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)
