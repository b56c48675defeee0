"""PatchCore (Roth et al. 2022, arXiv 2106.08265): the distance to the nearest patch features of the train split.

As in the paper and in anomalib, the features are averaged over 3x3 positions, and a coreset of them is chosen by the
greedy k-centre algorithm. Here the distances of that algorithm are exact, without a random projection, a picture's
score is the largest distance, without the paper's factor for rare neighbours, and the map of stride 4 is used, too,
because pictures are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.backbone import LITE0
from edgekit.models.patch_features import PatchFeatures

WINDOW = 3


def patchcore(
    input_shape: tuple[int, ...],
    backbone: str = LITE0,
    backbone_kwargs: dict[str, Any] | None = None,
    strides: Sequence[int] = (4, 8, 16),
    grid: int = 8,
    patches: int = 1000,
    seed: int = 0,
) -> nn.Module:
    """Build a network (N, C, H, W) -> distances (N, 1, H / grid, W / grid); see `PatchFeatures`.

    `patches` is the size of the coreset.
    """
    network = Patchcore(input_shape, backbone, backbone_kwargs, strides, grid, None, window=WINDOW, seed=seed)
    return network.with_memory(patches, seed)


class Patchcore(PatchFeatures):
    """`centre` (channels, 1, 1) is subtracted first, so that float32 does not lose digits in the squares.

    `memory` is a 1x1 convolution with a channel for each patch m of the coreset: x -> |m|² - 2 m·x.
    """

    def with_memory(self, patches: int, seed: int) -> Patchcore:
        """Add an empty memory for a number of patches and return the network."""
        if patches < 1:
            raise ValueError(f"patches: got {patches}; use at least 1")
        self.seed = seed
        self.centre = nn.Parameter(torch.zeros(self.channels, 1, 1), requires_grad=False)
        self.memory = nn.Conv2d(self.channels, patches, 1).requires_grad_(False)
        return self

    def distances(self, features: Tensor) -> Tensor:
        centred = features - self.centre
        nearest = self.memory(centred).amin(dim=1, keepdim=True)
        return (nearest + centred.square().sum(dim=1, keepdim=True)).relu().sqrt()

    def fit_features(self, batches: Iterable[Tensor]) -> None:
        """Set the memory to the coreset of all patches."""
        with torch.no_grad():
            parts = [self.features(batch).permute(0, 2, 3, 1).reshape(-1, self.channels) for batch in batches]
            count, wanted = sum(map(len, parts)), self.memory.out_channels
            if count < wanted:
                raise ModelError(f"patchcore: train has {count} patches, and patches is {wanted}; lower it")
            rows = torch.cat(parts)
            centre = rows.double().mean(dim=0).float()
            chosen = (rows - centre)[coreset(rows - centre, wanted, self.seed)]
            self.centre.copy_(centre[:, None, None])
            self.memory.weight.copy_(-2 * chosen[:, :, None, None])
            self.memory.bias.copy_(chosen.double().square().sum(dim=1))  # type: ignore[union-attr]


def coreset(rows: Tensor, size: int, seed: int) -> list[int]:
    """Return the indices of `size` rows (n, channels) chosen by the greedy k-centre algorithm (Sener, Savarese 2018).

    The first is drawn with `seed`. Each other is the row that is farthest from those before it.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = [int(torch.randint(len(rows), (1,), generator=generator))]
    squares = rows.square().sum(dim=1)
    nearest = torch.full((len(rows),), torch.inf)
    while len(chosen) < size:
        last = chosen[-1]
        nearest = torch.minimum(nearest, squares - 2 * (rows @ rows[last]) + squares[last])
        nearest[last] = -torch.inf
        chosen.append(int(nearest.argmax()))
    return chosen
