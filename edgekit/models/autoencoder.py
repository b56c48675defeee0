"""A fully connected autoencoder, as MLPerf Tiny's for anomalous sounds (Koizumi et al. 2020, DCASE task 2), smaller.

What it cannot carry through its bottleneck it cannot give back: trained on the ordinary, it gives back that alone.
"""

from __future__ import annotations

import math

from torch import nn


def autoencoder(input_shape: tuple[int, ...], width: int = 64, depth: int = 2, bottleneck: int = 8) -> nn.Module:
    """(N, F), or anything else, -> the same again; `depth` layers of `width` units on each side of the bottleneck.

    64 features: 17,736 parameters.
    """
    features = math.prod(input_shape)
    sides = [features, *[width] * depth, bottleneck, *[width] * depth]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in zip(sides, sides[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers.append(nn.Linear(sides[-1], features))
    return nn.Sequential(*layers, *([nn.Unflatten(1, tuple(input_shape))] if len(input_shape) > 1 else []))
