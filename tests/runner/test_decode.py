"""Pictures become the raw sample that a bundle promises, its sides where they belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import decode
from edgekit.runner.manifest import RawSpec

WIDE = RawSpec("image", (6, 10, 3), "uint8")


def picture(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards, blue is even."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    pixels[..., 2] = 90
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [(10, 6), (50, 30), (30, 50)])
def test_a_picture_of_any_size_keeps_its_sides_and_colours(size: tuple[int, int], tmp_path: Path) -> None:
    picture(*size).save(tmp_path / "one.png")
    sample = decode.read(tmp_path / "one.png", WIDE)
    assert (sample.shape, sample.dtype) == ((6, 10, 3), np.uint8)
    red, green, blue = (sample[..., channel].astype(int) for channel in range(3))
    assert (np.diff(red, axis=1) > 0).all() and np.ptp(red, axis=0).max() <= 1
    assert (np.diff(green, axis=0) > 0).all() and np.ptp(green, axis=1).max() <= 1
    assert np.abs(blue - 90).max() <= 1
