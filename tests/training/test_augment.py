"""Shifts and mirrors of raw images."""

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.training.batches import augment, augment_windows

IMAGES = np.random.default_rng(0).integers(1, 256, (64, 16, 8, 3), dtype=np.uint8)


def test_none_gives_the_samples_as_they_are():
    assert augment(IMAGES, "none", np.random.default_rng(0)) is IMAGES


@pytest.mark.parametrize("kind", ["shift", "shift_flip"])
def test_same_generator_same_images(kind):
    first, again, other = (augment(IMAGES, kind, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == IMAGES.shape
    assert first.dtype == IMAGES.dtype
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_shift_moves_each_image_by_up_to_an_eighth_and_fills_with_zeros():
    seen = set()
    for before, after in zip(IMAGES, augment(IMAGES, "shift", np.random.default_rng(3)), strict=True):
        padded = np.pad(before, ((2, 2), (1, 1), (0, 0)))
        found = [(y, x) for y in range(5) for x in range(3) if np.array_equal(padded[y : y + 16, x : x + 8], after)]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 12  # of 15 places


def test_a_mirror_is_left_to_right_and_for_about_half_of_the_images():
    dots = np.zeros((200, 8, 8, 1), dtype=np.uint8)
    dots[:, 4, 1] = 255
    columns = augment(dots, "shift_flip", np.random.default_rng(0)).reshape(200, 8, 8).any(axis=1).argmax(axis=1)
    assert set(columns) == {0, 1, 2, 5, 6, 7}
    assert 60 < np.isin(columns, (5, 6, 7)).sum() < 140


WINDOWS = np.random.default_rng(0).normal(9.81, 1, (200, 32, 3)).astype(np.float32)


def test_windows_are_moved_in_time_by_up_to_an_eighth_and_their_ends_held():
    moved = augment_windows(WINDOWS, "shift", np.random.default_rng(1))
    assert moved.shape == WINDOWS.shape and moved.dtype == WINDOWS.dtype and moved.flags.c_contiguous
    seen = set()
    for before, after in zip(WINDOWS, moved, strict=True):
        held = np.concatenate([np.repeat(before[:1], 4, axis=0), before, np.repeat(before[-1:], 4, axis=0)])
        found = [start - 4 for start in range(9) if np.array_equal(held[start : start + 32], after)]
        assert len(found) == 1
        seen.update(found)
    assert seen == set(range(-4, 5))
    assert np.array_equal(moved, augment_windows(WINDOWS, "shift", np.random.default_rng(1)))
    assert augment_windows(WINDOWS, "none", np.random.default_rng(1)) is WINDOWS


def test_time_is_never_mirrored():
    with pytest.raises(ConfigError, match="'shift_flip', but the samples are windows, and time would run backwards"):
        augment_windows(WINDOWS, "shift_flip", np.random.default_rng(1))


def test_windows_too_short_for_an_eighth_stay():
    assert np.array_equal(augment_windows(WINDOWS[:, :3], "shift", np.random.default_rng(1)), WINDOWS[:, :3])
