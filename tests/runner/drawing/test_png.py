"""What is written is read back as it was, by a library that knows PNG."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from edgekit.runner.drawing import png


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (48, 64), (31, 17)])
def test_every_pixel_comes_back(size: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    with Image.open(io.BytesIO(png.encode(picture))) as found:
        assert (found.format, found.mode, found.size) == ("PNG", "RGB", size[::-1])
        np.testing.assert_array_equal(np.asarray(found), picture)


def test_a_smooth_picture_takes_few_bytes() -> None:
    across, down = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(200, dtype=np.uint8))
    picture = np.stack([across, down, across], axis=-1)
    assert len(png.encode(picture)) < picture.size / 50
