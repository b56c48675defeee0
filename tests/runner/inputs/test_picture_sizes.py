"""Ways to bring a picture to size: bars of any grey, parts of a crop, and filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import input_path
from edgekit.runner.bundle.input_path_rules import check_input_path
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import picture

SIZE = (24, 32)
"""Height and width of a sample."""


def image(width: int, height: int, mode: str = "RGB") -> Image.Image:
    random = np.random.default_rng(width + height)
    pixels = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def sample(source: Image.Image, channels: int = 3, **options: Any) -> np.ndarray:
    return picture.decode(source, input_path.picture_steps((*SIZE, channels), **options))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fill", [0, 114, 255])
def test_the_bars_of_a_letterbox_have_the_grey_that_is_named(fill: int, channels: int) -> None:
    square = Image.new("RGB", (48, 48), (9, 9, 9))
    x = sample(square, channels, fit="letterbox", fill=fill)
    assert (x[:, 4:28] == 9).all() and (x[:, :4] == fill).all() and (x[:, 28:] == fill).all()


def test_a_crop_keeps_the_share_of_its_sides() -> None:
    source = image(64, 48)
    inner = source.crop((16, 12, 48, 36))
    assert np.array_equal(sample(source, fit="crop", share=0.5), np.asarray(inner))
    assert np.array_equal(sample(source, fit="crop", share=1.0), sample(source, fit="crop"))


@pytest.mark.parametrize("size", [(100, 75), (20, 15), (33, 47), (32, 24), (1, 1)])
def test_sampling_mixes_the_four_nearest_pixels(size: tuple[int, int]) -> None:
    source = image(*size)
    x = np.asarray(source).astype(np.float64)
    for axis, after in ((0, SIZE[0]), (1, SIZE[1])):
        before = x.shape[axis]
        place = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
        low = np.minimum(place.astype(int), before - 1)
        high, share = np.minimum(low + 1, before - 1), place - low
        share = share.reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    made = sample(source, fit="stretch", filter="sampled").astype(np.float64)
    assert np.abs(made - x).max() <= 1.0


def test_bicubic_is_pillows() -> None:
    source = image(90, 70)
    expected = source.resize((SIZE[1], SIZE[0]), Image.Resampling.BICUBIC)
    assert np.array_equal(sample(source, fit="stretch", filter="bicubic"), np.asarray(expected))


def test_the_usual_way_is_stated_without_options() -> None:
    steps = input_path.picture_steps((*SIZE, 3), "letterbox")
    assert set(steps[1]) == {"step", "height", "width", "fit"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "letterbox", "fill": 256}, "fill"),
        ({"fit": "stretch", "fill": 114}, "fill belongs to the fit letterbox"),
        ({"fit": "letterbox", "share": 0.5}, "share belongs to the fit crop"),
        ({"fit": "crop", "share": 1.5}, "share"),
        ({"fit": "crop", "filter": "lanczos"}, "filter"),
        ({"fit": "crop", "colour": 3}, "colour"),
    ],
)
def test_a_wrong_option_of_a_manifest_is_refused(options: dict[str, Any], message: str) -> None:
    decode, resize = input_path.picture_steps((*SIZE, 3))
    with pytest.raises(InputError, match=message):
        check_input_path(RawSpec("image", (*SIZE, 3), "uint8", input_path=(decode, {**resize, **options})))
