"""PatchCore: the distance to the nearest patch, as scikit-learn finds it, and a coreset that covers all patches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from edgekit.core.errors import ModelError
from edgekit.models.patchcore import Patchcore, coreset, patchcore

SHAPE = (3, 32, 48)
SMALL = {"alpha": 0.5, "last": 32, "reduction": 32}


def pictures(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def fitted(patches: int = 50) -> Patchcore:
    torch.manual_seed(1)
    network = patchcore(SHAPE, backbone_kwargs=SMALL, patches=patches).eval()
    assert isinstance(network, Patchcore)
    network.fit_features(pictures(6).split(4))
    return network


def rows_of(network: Patchcore, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        rows = network.features(x).permute(0, 2, 3, 1).reshape(-1, network.channels)
    return rows.numpy().astype(np.float64)


def test_distances_are_those_of_the_nearest_neighbour() -> None:
    network, new = fitted(), 2 * pictures(3, seed=9)
    centre = network.centre.detach().flatten().numpy()
    memory = network.memory.weight.detach().numpy()[:, :, 0, 0] / -2 + centre
    expected, _ = NearestNeighbors(n_neighbors=1).fit(memory).kneighbors(rows_of(network, new))
    with torch.no_grad():
        found = network(new)
    assert found.shape == (3, 1, 4, 6)
    np.testing.assert_allclose(found.flatten().numpy(), expected[:, 0], rtol=1e-4, atol=1e-3)


def test_the_memory_holds_patches_of_the_train_split_and_equal_pictures_give_equal_ones() -> None:
    network, again = fitted(), fitted()
    memory = network.memory.weight.detach().numpy()[:, :, 0, 0] / -2 + network.centre.detach().flatten().numpy()
    gaps, places = NearestNeighbors(n_neighbors=1).fit(rows_of(network, pictures(6))).kneighbors(memory)
    assert gaps.max() < 1e-4 and len(set(places.ravel().tolist())) == 50
    assert torch.equal(network.memory.weight, again.memory.weight)


def test_the_coreset_is_that_of_the_greedy_algorithm() -> None:
    rows = torch.randn(80, 5, generator=torch.Generator().manual_seed(3))
    chosen = coreset(rows, 12, seed=4)
    distances = np.linalg.norm(rows.numpy()[:, None] - rows.numpy()[None], axis=2)
    for number in range(1, 12):
        nearest = distances[:, chosen[:number]].min(axis=1)
        assert nearest[chosen[number]] == pytest.approx(nearest.max(), rel=1e-4)


def test_all_patches_leave_no_distance_on_the_train_split() -> None:
    network = fitted(patches=6 * 24)
    with torch.no_grad():
        assert float(network(pictures(6)).max()) < 0.05


def test_more_patches_than_there_are_are_refused() -> None:
    with pytest.raises(ModelError, match="train has 144 patches, and patches is 145"):
        fitted(patches=145)
    with pytest.raises(ValueError, match="patches: got 0"):
        fitted(patches=0)
