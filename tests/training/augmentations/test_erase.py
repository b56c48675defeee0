"""Random erasing: one rectangle of noise, of the areas and shapes that were asked for."""

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.training import augmentations
from edgekit.training.augmentations.erase import MAX_ASPECT_RATIO, Options, apply

FLAT = np.full((300, 20, 24, 3), 7, dtype=np.uint8)


def boxes(after: np.ndarray, before: np.ndarray) -> list[tuple[int, int]]:
    """(height, width) of what changed, of each image that did."""
    sizes = []
    for one, other in zip(after, before, strict=True):
        changed = (one != other).any(axis=2)
        if changed.any():
            rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
            assert changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].mean() > 0.95  # noise may hit a 7
            sizes.append((rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1))
    return sizes


def test_one_rectangle_of_the_shares_and_ratios_of_the_paper() -> None:
    found, mix = apply(FLAT, Options(probability=1.0, least_area=0.1, largest_area=0.2), np.random.default_rng(1))
    sizes = boxes(found, FLAT)
    assert mix is None and len(sizes) == len(FLAT)
    shares = [height * width / (20 * 24) for height, width in sizes]
    assert 0.06 < min(shares) < 0.12 and 0.18 < max(shares) < 0.25  # sides are whole pixels
    ratios = [height / width for height, width in sizes]
    assert min(ratios) < 0.5 and max(ratios) > 2
    assert max(max(ratios), 1 / min(ratios)) < 1.3 * MAX_ASPECT_RATIO
    assert len(set(sizes)) > 30


def test_the_noise_is_of_all_bytes_in_every_channel() -> None:
    found, _ = apply(FLAT, Options(probability=1.0), np.random.default_rng(1))
    for channel in range(3):
        assert len(np.unique(found[..., channel])) == 256


def test_other_types_get_noise_of_the_image_s_own_range() -> None:
    images = np.random.default_rng(0).uniform(-2, 3, (20, 8, 8, 1)).astype(np.float32)
    found, _ = apply(images, Options(probability=1.0), np.random.default_rng(1))
    assert found.dtype == np.float32 and not np.array_equal(found, images)
    for one, other in zip(found, images, strict=True):
        assert other.min() <= one.min() and one.max() <= other.max()


def test_areas_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"least_area \(0\.5\) is above largest_area \(0\.4\); swap them"):
        augmentations.parse({"kind": "erase", "least_area": 0.5})
