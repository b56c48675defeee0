"""PaDiM (Defard et al. 2021, arXiv 2011.08785): a normal distribution of the patch features at each position.

As in the paper and in anomalib, the features are a random subset of the channels of three maps, the covariance is that
of the train split plus 0.01 times the identity, and the distance is Mahalanobis'. Here the grid has the stride of the
second map, not of the first, because the matrices of all positions would otherwise take four times as much memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.backbone import LITE0
from edgekit.models.patch_features import PatchFeatures

REGULARIZATION = 0.01
MIN_PICTURES = 2


def padim(
    input_shape: tuple[int, ...],
    backbone: str = LITE0,
    backbone_kwargs: dict[str, Any] | None = None,
    strides: Sequence[int] = (4, 8, 16),
    grid: int = 8,
    channels: int = 100,
    seed: int = 0,
) -> nn.Module:
    """Build a network (N, C, H, W) -> Mahalanobis distances (N, 1, H / grid, W / grid); see `PatchFeatures`.

    Its matrices have 4 · channels² · H · W / grid² bytes: 10 MB for 100 channels and pictures of 128x128.
    """
    return Padim(input_shape, backbone, backbone_kwargs, strides, grid, channels, window=1, seed=seed)


class Padim(PatchFeatures):
    """`mean` (positions, channels), and `whitening` (positions, channels, channels), the inverted Cholesky factors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        positions = self.size[0] * self.size[1]
        self.mean = nn.Parameter(torch.zeros(positions, 1, self.channels), requires_grad=False)
        self.whitening = nn.Parameter(torch.eye(self.channels).repeat(positions, 1, 1), requires_grad=False)

    def distances(self, features: Tensor) -> Tensor:
        rows = features.flatten(2).permute(2, 0, 1) - self.mean
        squares = torch.bmm(rows, self.whitening).square().sum(dim=2)
        return squares.sqrt().transpose(0, 1).reshape(-1, 1, *self.size)

    def fit_features(self, batches: Iterable[Tensor]) -> None:
        """Set the mean and covariance of each position, computed in float64."""
        count, total, products = 0, torch.zeros(1), torch.zeros(1)
        with torch.no_grad():
            for batch in batches:
                rows = self.features(batch).flatten(2).permute(2, 0, 1).double()
                count, total = count + len(batch), total + rows.sum(dim=1)
                products = products + rows.transpose(1, 2) @ rows
            if count < MIN_PICTURES:
                raise ModelError(f"padim: got {count} pictures without defects in train; give at least {MIN_PICTURES}")
            mean = total / count
            covariance = (products - count * mean[:, :, None] * mean[:, None, :]) / (count - 1)
            identity = torch.eye(self.channels, dtype=torch.float64)
            factors = torch.linalg.cholesky(covariance + REGULARIZATION * identity)
            inverse = torch.linalg.solve_triangular(factors, identity.expand_as(factors), upper=False)
            self.mean.copy_(mean[:, None])
            self.whitening.copy_(inverse.transpose(1, 2))
