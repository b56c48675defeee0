"""A fully connected autoencoder. MLPerf Tiny detects anomalous sounds with a larger one (Koizumi et al. 2020, DCASE).

The network is trained on normal samples. The details of other samples are lost in its bottleneck, so it reconstructs
them badly.
"""

from __future__ import annotations

import math

from torch import nn


def autoencoder(input_shape: tuple[int, ...], width: int = 64, depth: int = 2, bottleneck: int = 8) -> nn.Module:
    """Build an autoencoder that maps (N, F), or a batch of any other shape, to the same shape.

    It has `depth` layers of `width` units on each side of the bottleneck. For 64 features it has 17,736 parameters.
    """
    features = math.prod(input_shape)
    sides = [features, *[width] * depth, bottleneck, *[width] * depth, features]
    layers: list[nn.Module] = [nn.Flatten()]
    for position, (inputs, outputs) in enumerate(zip(sides, sides[1:], strict=False), 1):
        # the bottleneck and the output have no ReLU, because both may be negative
        activation = [] if position in (depth + 1, len(sides) - 1) else [nn.ReLU()]
        layers += [_linear(inputs, outputs), *activation]
    return nn.Sequential(*layers, *([nn.Unflatten(1, tuple(input_shape))] if len(input_shape) > 1 else []))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with He initialisation (He et al. 2015), because the network has no batch normalisation."""
    layer = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer
