"""Mixup: blends by the share that its labels have."""

import numpy as np
import pytest

from edgekit.training.augmentations.mixup import Options, apply

IMAGES = np.random.default_rng(0).integers(0, 256, (256, 4, 5, 3), dtype=np.uint8)


def test_each_pixel_is_the_blend_of_both_rounded() -> None:
    found, mix = apply(IMAGES, Options(alpha=1.0), np.random.default_rng(1))
    weights = mix.own_shares[:, None, None, None].astype(np.float64)
    expected = weights * IMAGES + (1 - weights) * IMAGES[mix.partners]
    assert np.abs(found - expected).max() <= 0.5001


def test_windows_are_blended_without_rounding() -> None:
    windows = np.random.default_rng(0).normal(0, 1, (8, 6, 2)).astype(np.float32)
    found, mix = apply(windows, Options(alpha=1.0), np.random.default_rng(1))
    weights = mix.own_shares[:, None, None]
    assert found == pytest.approx(weights * windows + (1 - weights) * windows[mix.partners])


def test_shares_have_the_beta_distribution() -> None:
    """Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1))."""
    many = np.zeros((20_000, 1, 1), dtype=np.float32)
    for alpha in (0.2, 1.0):
        _, mix = apply(many, Options(alpha=alpha), np.random.default_rng(2))
        assert mix.own_shares.mean() == pytest.approx(0.5, abs=0.02)
        assert mix.own_shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_every_sample_is_a_partner_once() -> None:
    _, mix = apply(IMAGES, Options(), np.random.default_rng(3))
    assert sorted(mix.partners) == list(range(len(IMAGES)))
