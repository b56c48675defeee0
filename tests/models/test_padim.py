"""PaDiM: the distances are Mahalanobis' of the patch features, as NumPy computes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.core.errors import ModelError
from edgekit.models.padim import REGULARIZATION, Padim, padim

SHAPE = (3, 32, 48)
SMALL = {"alpha": 0.5, "last": 32, "reduction": 32}


def pictures(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def fitted(count: int = 12, batch: int = 5, seed: int = 0) -> Padim:
    torch.manual_seed(1)
    network = padim(SHAPE, backbone_kwargs=SMALL, channels=40, seed=seed).eval()
    assert isinstance(network, Padim)
    network.fit_features(pictures(count).split(batch))
    return network


def test_distances_are_mahalanobis_of_numpy() -> None:
    network, new = fitted(), 3 * pictures(4, seed=9)
    with torch.no_grad():
        found = network(new).numpy()
        train, rows = (
            network.features(each).flatten(2).numpy().astype(np.float64).transpose(2, 0, 1)
            for each in (pictures(12), new)
        )
    assert found.shape == (4, 1, 4, 6)
    for place, (before, after) in enumerate(zip(train, rows, strict=True)):
        inverse = np.linalg.inv(np.cov(before, rowvar=False) + REGULARIZATION * np.eye(40))
        centred = after - before.mean(axis=0)
        expected = np.sqrt(np.einsum("ni,ij,nj->n", centred, inverse, centred))
        np.testing.assert_allclose(found.reshape(4, -1)[:, place], expected, rtol=1e-4)


def test_equal_pictures_give_equal_weights_whatever_the_batches() -> None:
    one, other, rest = fitted(), fitted(), fitted(batch=12)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
        torch.testing.assert_close(value, rest.state_dict()[name], rtol=1e-3, atol=1e-3)


def test_channels_are_drawn_by_the_seed() -> None:
    one, other = (torch.cat([each.weight.sum(0).flatten() for each in fitted(seed=seed).select]) for seed in (0, 1))
    assert one.sum() == other.sum() == 40 and not torch.equal(one, other)


@pytest.mark.parametrize(
    ("kwargs", "shape", "word"),
    [
        ({"channels": 0}, SHAPE, "channels"),
        ({"channels": 5000}, SHAPE, "together"),
        ({"strides": (4, 64)}, (3, 64, 64), "stride 64"),
        ({}, (3, 40, 48), "multiples of 16"),
        ({"backbone": "edgekit.models.detector:detector", "backbone_kwargs": {}}, SHAPE, "nn.Sequential"),
    ],
)
def test_what_does_not_fit_is_refused(kwargs: dict[str, object], shape: tuple[int, ...], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        padim(shape, **{"backbone_kwargs": SMALL, "channels": 40, **kwargs})  # type: ignore[arg-type]


def test_one_picture_has_no_covariance() -> None:
    with pytest.raises(ModelError, match="got 1 pictures"):
        fitted(count=1)
