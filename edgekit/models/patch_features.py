"""Networks that compare each part of a picture with the same parts, or all parts, of pictures without defects.

The feature maps are those of a network that has been trained for another task, usually on ImageNet. Each position of a
grid has a vector of channels from all maps, its patch features. A subclass computes how far they are from those of the
train split. Nothing is trained by gradients: `fit_features` runs once over the train split.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.models.backbone import feature_maps
from edgekit.models.layers import image_channels

FIT_METHOD = "fit_features"
"""The method of networks that are fitted to samples instead of being trained by gradients."""


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
        self.backbone = feature_maps(input_shape, sorted(strides), backbone, backbone_kwargs)
        self._window, self._grid = window, grid
        self.select = nn.ModuleList(_selections(self.backbone.channels, channels, seed))
        self.channels = sum(layer.out_channels for layer in self.select)  # type: ignore[misc]
        self.size = height // grid, width // grid
        self._factors = [stride / grid for stride in sorted(strides)]
        self.float_tail = tuple(f"select.{index}" for index in range(len(self.select)))

    def forward(self, x: Tensor) -> Tensor:
        return self.distances(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """Return the patch features (N, channels, h, w)."""
        parts = []
        for select, each, factor in zip(self.select, self.backbone(x), self._factors, strict=True):
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
