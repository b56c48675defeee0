"""Networks that compare each part of a picture with the same parts, or all parts, of pictures without defects.

The feature maps are those of a network that has been trained for another task, usually on ImageNet. Each position of a
grid has a vector of channels from all maps, its patch features. A subclass computes how far they are from those of the
train split. Nothing is trained by gradients: `fit_features` runs once over the train split.
"""

from __future__ import annotations

import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.models.layers import image_channels

FIT_METHOD = "fit_features"
"""The method of networks that are fitted to samples instead of being trained by gradients."""
BACKBONE = "edgekit.models.efficientnet_lite:efficientnet_lite0"
BACKBONE_KWARGS = {"alpha": 1.0, "last": 1280, "reduction": 32, "padding": "tensorflow"}
"""Arguments with which `BACKBONE` is the published network."""


class PatchFeatures(nn.Module, ABC):
    """(N, C, H, W) -> a map (N, 1, h, w) of how far each position is from the train split; 0 is no distance.

    In int8 models, the modules in `float_tail` and everything after them compute in float, because ranges that are
    calibrated on pictures without defects would clip the distances of defects.

    Parameters
    ----------
    input_shape : tuple of int
        (C, H, W). H and W must be multiples of all strides.
    backbone : str
        `module:function` that builds a network for images as an `nn.Sequential`. Its last layers are left out.
    backbone_kwargs : dict, optional
        Arguments of that function. The defaults belong to the default backbone only.
    strides : sequence of int
        The strides of the maps, in pixels: of each stride, the last map is used.
    grid : int
        The stride of the map of distances.
    channels : int, optional
        Number of channels that are drawn from all maps. By default, all are used.
    window : int
        Odd side of the window over which each map is averaged first; 1 leaves the maps as they are.
    seed : int
        Determines which channels are drawn.

    Raises
    ------
    ValueError
        The backbone has no such maps, or the sizes do not fit.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        backbone: str,
        backbone_kwargs: dict[str, Any] | None,
        strides: Sequence[int],
        grid: int,
        channels: int | None,
        window: int,
        seed: int,
    ) -> None:
        super().__init__()
        height, width = input_shape[1:] if image_channels(input_shape) else (0, 0)
        if any(side % stride for side in (height, width) for stride in (*strides, grid)):
            raise ValueError(
                f"height and width must be multiples of {max(*strides, grid)}, got {height} and {width}; give the data "
                "another size"
            )
        network = _build_backbone(backbone, input_shape, backbone_kwargs)
        maps = _maps_by_stride(network, input_shape)
        missing = [stride for stride in strides if stride not in maps]
        if missing:
            raise ValueError(
                f"{backbone} has no map of stride {missing[0]}; its strides are {', '.join(map(str, maps))}"
            )
        chosen = [maps[stride] for stride in sorted(strides)]
        self.backbone = network[: chosen[-1][0] + 1]
        self._ends, self._window, self._grid = [index for index, _ in chosen], window, grid
        self.select = nn.ModuleList(_selections([count for _, count in chosen], channels, seed))
        self.channels = sum(layer.out_channels for layer in self.select)  # type: ignore[misc]
        self.size = height // grid, width // grid
        self._factors = [stride / grid for stride in sorted(strides)]
        self.float_tail = tuple(f"select.{index}" for index in range(len(self.select)))

    def forward(self, x: Tensor) -> Tensor:
        return self.distances(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """Return the patch features (N, channels, h, w)."""
        maps = []
        for index, layer in enumerate(self.backbone):
            x = layer(x)
            if index in self._ends:
                maps.append(x)
        parts = []
        for select, each, factor in zip(self.select, maps, self._factors, strict=True):
            part = select(each)
            if self._window > 1:
                part = functional.avg_pool2d(part, self._window, 1, self._window // 2)
            if factor < 1:
                part = functional.avg_pool2d(part, round(1 / factor))
            elif factor > 1:
                part = functional.interpolate(part, scale_factor=factor, mode="nearest")
            parts.append(part)
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    @abstractmethod
    def distances(self, features: Tensor) -> Tensor:
        """Return the distances (N, 1, h, w) of patch features (N, channels, h, w)."""

    @abstractmethod
    def fit_features(self, batches: Iterable[Tensor]) -> None:
        """Fit to network inputs of pictures without defects, in batches (n, C, H, W). Raises ModelError if too few."""


def _build_backbone(name: str, input_shape: tuple[int, ...], kwargs: dict[str, Any] | None) -> nn.Sequential:
    module, _, function = name.partition(":")
    if kwargs is None:
        kwargs = BACKBONE_KWARGS if name == BACKBONE else {}
    network = getattr(importlib.import_module(module), function)(input_shape=input_shape, num_classes=2, **kwargs)
    if not isinstance(network, nn.Sequential):
        raise ValueError(f"backbone {name} returns a {type(network).__name__}; name a builder of an nn.Sequential")
    return network.eval()


def _maps_by_stride(network: nn.Sequential, input_shape: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """Return, for each stride, the index of the last layer with a map of that stride, and its number of channels."""
    maps: dict[int, tuple[int, int]] = {}
    x = torch.zeros(1, *input_shape)
    with torch.no_grad():
        for index, layer in enumerate(network):
            x = layer(x)
            if x.ndim == 4 and x.shape[2] > 1 and input_shape[1] % x.shape[2] == 0:
                maps[input_shape[1] // x.shape[2]] = (index, x.shape[1])
    return maps


def _selections(counts: Sequence[int], channels: int | None, seed: int) -> list[nn.Conv2d]:
    """Return a 1x1 convolution for each map, which copies the channels that are drawn from all maps together.

    They are convolutions, because every converter can keep those in float.
    """
    total = sum(counts)
    if channels is not None and not 0 < channels <= total:
        raise ValueError(f"channels: got {channels}; the maps have {total} channels together")
    drawn = sorted(random.Random(seed).sample(range(total), channels or total))
    layers, start = [], 0
    for count in counts:
        indices = [index - start for index in drawn if start <= index < start + count]
        if not indices:
            raise ValueError(f"channels: got {channels}, and none of them is from a map of {count}; use more")
        layer = nn.Conv2d(count, len(indices), 1, bias=False)
        layer.weight.data.zero_()
        layer.weight.data[range(len(indices)), indices] = 1
        layers.append(layer)
        start += count
    return layers
