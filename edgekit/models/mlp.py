"""A multilayer perceptron."""

from __future__ import annotations

import math

from torch import nn


def mlp(input_shape: tuple[int, ...], num_classes: int, width: int = 64, depth: int = 2) -> nn.Module:
    """Build a network: (N, any shape), flattened -> logits or values, with `depth` hidden ReLU layers of `width` units.

    For 32x32 images and 10 classes there are 70,410 parameters on 1 channel and 201,482 on 3.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(input_shape)
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, num_classes))
