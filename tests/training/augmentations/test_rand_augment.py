"""RandAugment: each operation does what its name says, and Pillow's own where Pillow has the same."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from edgekit.core.errors import ConfigError
from edgekit.training.augmentations import rand_augment
from edgekit.training.augmentations.rand_augment import OPERATIONS, Options, apply

IMAGES = (np.random.default_rng(0).beta(2, 5, (6, 16, 16, 3)) * 200 + 20).astype(np.uint8)
HALF = np.full(6, 0.5)


def pillow(each) -> np.ndarray:
    return np.stack([np.asarray(each(Image.fromarray(image))) for image in IMAGES])


def test_tones_are_pillows() -> None:
    """A level of 0.5 is a factor of 1.45; Pillow cuts fractions off, here they are rounded."""
    for ours, theirs in (
        (rand_augment.autocontrast, ImageOps.autocontrast),
        (rand_augment.equalize, ImageOps.equalize),
        (rand_augment.posterize, lambda image: ImageOps.posterize(image, 6)),
        (rand_augment.solarize, lambda image: ImageOps.solarize(image, 128)),
        (rand_augment.brightness, lambda image: ImageEnhance.Brightness(image).enhance(1.45)),
        (rand_augment.colour, lambda image: ImageEnhance.Color(image).enhance(1.45)),
        (rand_augment.contrast, lambda image: ImageEnhance.Contrast(image).enhance(1.45)),
        (rand_augment.sharpness, lambda image: ImageEnhance.Sharpness(image).enhance(1.45)),
    ):
        apart = np.abs(ours(IMAGES, HALF).astype(int) - pillow(theirs).astype(int))
        assert apart.max() <= 2, (ours.__name__, apart.max())


def test_images_are_moved_by_whole_pixels_and_filled_with_black() -> None:
    found = rand_augment.shift_x(IMAGES, np.array([0.5] * 3 + [-0.5] * 3))  # 0.45 * 0.5 * 16 = 3.6: 4 pixels
    assert np.array_equal(found[:3, :, :-4], IMAGES[:3, :, 4:]) and not found[:3, :, -4:].any()
    assert np.array_equal(found[3:, :, 4:], IMAGES[3:, :, :-4]) and not found[3:, :, :4].any()
    found = rand_augment.shift_y(IMAGES, HALF)
    assert np.array_equal(found[:, :-4], IMAGES[:, 4:]) and not found[:, -4:].any()


def test_a_turn_keeps_the_centre_and_turns_by_its_angle() -> None:
    square = np.zeros((2, 33, 33, 1), dtype=np.uint8)
    square[:, 16, :] = 255  # a line through the centre
    found = rand_augment.rotate(square, np.array([1.0, -1.0]))[..., 0]
    for image, sign in zip(found, (1, -1), strict=True):
        assert image[16, 16] == 255
        rows, columns = np.nonzero(image)
        slope = np.polyfit(columns - 16, rows - 16, 1)[0]
        assert abs(slope) == pytest.approx(np.tan(np.deg2rad(30)), abs=0.05)
        assert np.sign(slope) == sign * np.sign(np.polyfit(*np.nonzero(found[0])[::-1], 1)[0])


def test_shears_leave_the_middle_row_and_move_the_first_and_the_last_apart() -> None:
    pillar = np.zeros((1, 21, 21, 1), dtype=np.uint8)
    pillar[:, :, 10] = 255
    found = rand_augment.shear_x(pillar, np.array([1.0]))[0, ..., 0].argmax(axis=1)
    assert found[10] == 10 and abs(found[0] - found[20]) == 6  # 0.3 * 20
    beam = pillar.transpose(0, 2, 1, 3)
    assert np.array_equal(rand_augment.shear_y(beam, np.array([1.0]))[0, ..., 0].argmax(axis=0), found)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_each_keeps_type_and_shape_of_any_image(operation) -> None:
    for shape in ((3, 16, 16, 3), (3, 7, 12, 1), (3, 1, 1, 3), (3, 2, 2, 4)):
        for images in (np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), IMAGES[:3, : shape[1], : shape[2]]):
            for level in (-1.0, 0.0, 1.0):
                found = operation(images, np.full(3, level))
                assert (found.shape, found.dtype) == (images.shape, np.uint8)


def test_at_magnitude_0_only_what_knows_no_strength_changes_an_image() -> None:
    free = {"autocontrast", "equalize"}
    for operation in OPERATIONS:
        unchanged = np.array_equal(operation(IMAGES, np.zeros(6)), IMAGES)
        assert unchanged == (operation.__name__ not in free), operation.__name__


def test_all_operations_come_up_and_an_image_is_the_same_in_any_company() -> None:
    """What an operation does to an image does not depend on the others of the batch."""
    together = [operation(IMAGES, HALF) for operation in OPERATIONS]
    alone = [np.concatenate([operation(IMAGES[i : i + 1], HALF[:1]) for i in range(6)]) for operation in OPERATIONS]
    assert all(np.array_equal(*pair) for pair in zip(together, alone, strict=True))
    many = np.repeat(IMAGES[:1], 500, axis=0)
    found, _ = apply(many, Options(operations=1, magnitude=7.0), np.random.default_rng(0))
    assert len(np.unique(found.reshape(500, -1), axis=0)) > 2 * len(OPERATIONS) - 8  # of both signs, where there are


def test_other_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="rand_augment: got images of float32; it supports only uint8"):
        apply(IMAGES.astype(np.float32), Options(), np.random.default_rng(0))
