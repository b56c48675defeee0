"""A network for samples of several tensors: one branch for each tensor, joined before the head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit.models.conv1d import conv_bn_relu

CHANNELS = (1, 3)
"""A first or last axis of one of these sizes is taken for the channels of an image."""
MAX_IDS = 10_000
"""Integers with more different values than this are treated as numbers, because their embedding would be too large."""


class Joint(nn.Module):
    """(N, …) for each tensor, in the order of the tensors -> (N, num_classes); each branch returns (N, width)."""

    def __init__(self, branches: list[nn.Module], width: int, num_classes: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.join = nn.Linear(width * len(branches), width)
        self.relu = nn.ReLU()
        self.head = nn.Linear(width, num_classes)

    def forward(self, *inputs: Tensor) -> Tensor:
        features = [branch(x) for branch, x in zip(self.branches, inputs, strict=True)]
        logits: Tensor = self.head(self.relu(self.join(torch.cat(features, dim=1))))
        return logits


class NumbersBranch(nn.Module):
    """(N, …) numbers -> (N, width). A norm without parameters first brings them to one scale."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size, affine=False)
        self.dense, self.relu = nn.Linear(size, width), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.relu(self.dense(self.norm(x.float().flatten(1))))
        return features


class ImageBranch(nn.Module):
    """(N, channels, height, width) -> (N, width); with `last`, the input is (N, height, width, channels)."""

    def __init__(self, channels: int, width: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.blocks = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        )  # fmt: skip
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2) if self.last else x
        features: Tensor = self.flatten(self.pool(self.blocks(self.norm(x))))
        return features


class WindowBranch(nn.Module):
    """(N, time, channels) -> (N, width)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, affine=False)
        self.blocks = nn.Sequential(conv_bn_relu(channels, width, 5), conv_bn_relu(width, width, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.norm(x.transpose(1, 2))).mean(2)


class IdsBranch(nn.Module):
    """(N, tokens) ids -> (N, width): the mean of their embeddings."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(count, width)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.vectors(x).mean(1)
        return features


def joint(
    input_shapes: dict[str, tuple[int, ...]], num_classes: int, id_counts: dict[str, int] | None = None, width: int = 16
) -> nn.Module:
    """Build a network with one branch for each input tensor.

    Tensors of three axes with 1 or 3 channels, first or last, are treated as images, tensors of two axes as windows,
    and vectors of integers with at most `MAX_IDS` different values as ids. All others are treated as numbers.

    Parameters
    ----------
    input_shapes
        The shape of each tensor, by name, without the batch.
    id_counts
        For tensors of non-negative integers, the number of values that they can have.
    width
        Number of features that each branch returns.

    Raises
    ------
    ValueError
        `width` is less than 1.
    """
    if width < 1:
        raise ValueError(f"joint needs a width >= 1, got {width}")
    counts = id_counts or {}
    branches = [_branch(shape, counts.get(name), width) for name, shape in input_shapes.items()]
    return Joint(branches, width, num_classes)


def _branch(shape: tuple[int, ...], ids: int | None, width: int) -> nn.Module:
    if ids is not None and ids <= MAX_IDS and len(shape) == 1:
        return IdsBranch(ids, width)
    if len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS):
        first = shape[0] in CHANNELS
        return ImageBranch(shape[0] if first else shape[2], width, last=not first)
    if len(shape) == 2:
        return WindowBranch(shape[1], width)
    size = 1
    for side in shape:
        size *= side
    return NumbersBranch(size, width)
