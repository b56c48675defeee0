"""The network that the seeded faults break: small, and with one of each thing that goes wrong."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Varied(nn.Module):
    """(N, 3, 16, 16) -> logits (N, classes): square kernels, stride 2, a residual, two poolings joined, two dense."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.first = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8))
        self.join = nn.ReLU()
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.peak, self.mean = nn.MaxPool2d(2), nn.AvgPool2d(2)
        self.mix = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.dense = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.stem(x))
        x = self.join(self.second(self.first(x)) + x)
        x = self.depthwise(x)
        x = self.mix(torch.cat([self.peak(x), self.mean(x)], dim=1))
        logits: Tensor = self.head(self.dense(self.flatten(self.pool(x))))
        return logits


def varied(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Varied(input_shape[0], num_classes)


class WithSoftmax(Varied):
    """Its outputs are probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).softmax(dim=1)


def with_softmax(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return WithSoftmax(input_shape[0], num_classes)
