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
    sides = [features, *[width] * depth, bottleneck, *[width] * depth, features]
    layers: list[nn.Module] = [nn.Flatten()]
    for place, (inputs, outputs) in enumerate(zip(sides, sides[1:], strict=False), 1):
        # neither what is carried through nor what is given back is cut off at zero
        cut = [] if place in (depth + 1, len(sides) - 1) else [nn.ReLU()]
        layers += [_linear(inputs, outputs), *cut]
    return nn.Sequential(*layers, *([nn.Unflatten(1, tuple(input_shape))] if len(input_shape) > 1 else []))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """With weights that keep the variance through many layers (He et al. 2015): there is no batch normalisation."""
    layer = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer
