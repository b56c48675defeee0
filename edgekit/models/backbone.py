"""The first layers of a classification network, as the backbone of a detector or a segmenter (Lin et al., CVPR 2017).

The layers keep the names and the order that they have in the classification network, so that weights which were trained
for classification fit (`edgekit.models.pretrained`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

LITE0 = "edgekit.models.efficientnet_lite:efficientnet_lite0"
LITE0_KWARGS: Mapping[str, Any] = {"alpha": 1.0, "last": 1280, "reduction": 32, "padding": "tensorflow"}


class Maps(nn.Sequential):
    """(N, C, H, W) -> feature maps of growing stride, each the last of its size. `channels` are their channels."""

    channels: tuple[int, ...]
    _ends: tuple[int, ...]

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = []
        for number, layer in enumerate(self):
            x = layer(x)
            if number in self._ends:
                maps.append(x)
        return maps


def feature_maps(
    input_shape: tuple[int, ...], strides: Sequence[int], builder: str = LITE0, kwargs: Mapping[str, Any] | None = None
) -> Maps:
    """Build a backbone whose feature maps have these strides in pixels.

    Parameters
    ----------
    input_shape
        (C, H, W); H and W must be multiples of the largest stride.
    strides
        The strides of the maps, in ascending order.
    builder
        The builder of a classification network that is a sequence of layers, as package.module:function.
    kwargs
        Its arguments besides the shape and the number of classes; None for those of the published EfficientNet-Lite0.

    Raises
    ------
    ValueError
        The builder does not return a sequence of layers, or the network has no map of one of the strides.
    """
    module, _, function = builder.partition(":")
    build = getattr(importlib.import_module(module), function)
    arguments = dict(LITE0_KWARGS if kwargs is None and builder == LITE0 else kwargs or {})
    network = build(input_shape, 1, **arguments)
    if not isinstance(network, nn.Sequential):
        raise ValueError(f"backbone: {builder} is no nn.Sequential of layers; use one of mobilenet_v2 to v4, "
                         "efficientnet_lite or mcunet")  # fmt: skip
    ends, channels = _last_of_each_stride(network, input_shape)
    missing = [stride for stride in strides if stride not in ends]
    if missing:
        raise ValueError(f"backbone: {builder} has no feature map of stride {missing[0]}; it has {sorted(ends)}")
    maps = Maps(*list(network)[: ends[strides[-1]] + 1])
    maps._ends = tuple(ends[stride] for stride in strides)
    maps.channels = tuple(channels[stride] for stride in strides)
    return maps


def _last_of_each_stride(network: nn.Sequential, input_shape: tuple[int, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the index of the last layer of each stride, and its channels."""
    ends, channels = dict[int, int](), dict[int, int]()
    x = torch.zeros(1, *input_shape)
    with torch.no_grad():
        for number, layer in enumerate(network.eval()):
            if isinstance(layer, nn.AdaptiveAvgPool2d):
                break
            x = layer(x)
            stride = input_shape[1] // x.shape[2]
            ends[stride], channels[stride] = number, x.shape[1]
    network.train()
    return ends, channels
