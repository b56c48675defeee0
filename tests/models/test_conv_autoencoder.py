"""The autoencoder of pictures: any size comes back, and it learns what is ordinary at the rate that `init` writes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from edgekit.cli.init.config import PICTURE_ANOMALY_RATE
from edgekit.core import tasks
from edgekit.core.config import TrainOptions
from edgekit.data import Data, load, parse
from edgekit.models.conv_autoencoder import conv_autoencoder
from edgekit.training.fit import fit

SCALE = [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.3], "std": [0.37]}]


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 33, 20), (1, 64, 48), (2, 5, 9), (1, 3, 3)])
def test_what_goes_in_comes_back_in_its_shape(shape: tuple[int, ...]) -> None:
    assert conv_autoencoder(shape)(torch.zeros(2, *shape)).shape == (2, *shape)


@pytest.mark.parametrize("shape", [(12,), (128, 3)])
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="needs an image as input"):
        conv_autoencoder(shape)


def test_the_parameters_are_as_documented() -> None:
    documented = re.search(r"([\d,]+) parameters", conv_autoencoder.__doc__ or "")
    counted = sum(each.numel() for each in conv_autoencoder((1, 16, 16)).parameters())
    assert documented and documented[1] == f"{counted:,}"


@pytest.fixture(scope="module")
def threes(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Pictures of 64×64 pixels: threes are ordinary, other digits are not."""
    digits = load_digits()
    three = np.flatnonzero(digits.target == 3)
    rows = np.r_[three, np.flatnonzero(digits.target != 3)[:60]]
    images = (digits.images[rows] * 15.9).astype(np.uint8).repeat(8, 1).repeat(8, 2)
    path = tmp_path_factory.mktemp("threes") / "threes.npz"
    np.savez(path, x_train=images, y_train=(np.arange(len(rows)) >= len(three)).astype(np.int64))
    return load(parse({"source": "npz", "path": str(path), "calibration_samples": 20}, "anomaly"))


@pytest.mark.numerics
@pytest.mark.slow
@pytest.mark.parametrize("width", [8, 16])
def test_it_learns_the_ordinary_at_the_rate_that_init_writes(threes: Data, width: int) -> None:
    torch.manual_seed(0)
    module = conv_autoencoder((1, 64, 64), width=width, bottleneck=width // 4)
    options = TrainOptions(epochs=8, batch_size=8, learning_rate=PICTURE_ANOMALY_RATE, augment="none")
    history = fit(module, threes, SCALE, options, seed=0)
    assert history.best.validation_accuracy > 0.85 > 0.5 == tasks.load_task("anomaly").CHANCE
