"""CutMix: one rectangle of another image, and labels by its area."""

import numpy as np
import pytest

from edgekit.training.augmentations.cutmix import Options, apply

PLAIN = np.repeat(np.arange(200, dtype=np.uint8), 12 * 10).reshape(200, 12, 10, 1)
"""Each image has one value of its own: what came from another one is seen."""


def test_what_was_replaced_is_one_rectangle_of_the_partner_and_the_share_is_what_stayed() -> None:
    found, mix = apply(PLAIN, Options(probability=1.0), np.random.default_rng(1))
    sizes = set()
    for image, own, partner, kept in zip(found, PLAIN, mix.partners, mix.own_shares, strict=True):
        elsewhere = (image != own).any(axis=2)
        assert set(np.unique(image)) <= {own[0, 0, 0], partner}
        if elsewhere.any():
            rows, columns = np.flatnonzero(elsewhere.any(axis=1)), np.flatnonzero(elsewhere.any(axis=0))
            box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert elsewhere[box].all() and (image[box] == partner).all()
            assert kept == pytest.approx(1 - elsewhere.mean())
            sizes.add(elsewhere.sum())
    assert len(sizes) > 20


def test_pixels_stay_where_they_were() -> None:
    images = np.arange(8 * 8, dtype=np.uint8).reshape(1, 8, 8, 1).repeat(6, axis=0)
    found, _ = apply(images, Options(probability=1.0), np.random.default_rng(0))
    assert np.array_equal(found, images)


def test_a_large_alpha_cuts_about_half() -> None:
    _, mix = apply(PLAIN, Options(probability=1.0, alpha=10.0), np.random.default_rng(1))
    inside = mix.own_shares[mix.own_shares < 0.8]  # a rectangle at the edge is cut off
    assert len(inside) > 50 and inside.min() > 0.2
