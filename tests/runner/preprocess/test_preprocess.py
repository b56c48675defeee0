from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps, transform

CHAIN = [
    {"step": "resize", "height": 12, "width": 20},
    {"step": "channels", "count": 1},
    {"step": "scale", "factor": 1 / 255},
    {"step": "normalize", "mean": [0.45], "std": [0.22]},
]


def image(height: int = 17, width: int = 9, channels: int = 3, count: int = 0) -> np.ndarray:
    rng = np.random.default_rng(height * width + channels)
    shape = (height, width, channels)
    return rng.integers(0, 256, (count, *shape) if count else shape, dtype=np.uint8)


def test_scale_and_normalize_follow_their_formulas() -> None:
    raw, mean, std = image(), [0.1, 0.2, 0.3], [0.5, 0.25, 2.0]
    steps = [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": mean, "std": std}]
    x = transform.apply(steps, raw)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, (raw / 255.0 - mean) / std, rtol=1e-5, atol=1e-6)


def test_one_mean_serves_every_channel_and_vectors_have_one_each() -> None:
    raw = np.array([1.0, 5.0, -2.0], dtype=np.float32)
    one = transform.apply([{"step": "normalize", "mean": [1.0], "std": [2.0]}], raw)
    each = transform.apply([{"step": "normalize", "mean": [1.0, 5.0, 0.0], "std": [1.0, 1.0, 4.0]}], raw)
    assert one.tolist() == [0.0, 2.0, -1.5]
    assert each.tolist() == [0.0, 0.0, -0.5]


@pytest.mark.parametrize("size", [(17, 9), (34, 27), (5, 4), (1, 1), (16, 30)])
def test_resize_is_pillows_bilinear_without_its_rounding(size: tuple[int, int]) -> None:
    raw = image(channels=1)
    x = transform.apply([{"step": "resize", "height": size[0], "width": size[1]}], raw)
    pillow = Image.fromarray(raw[..., 0].astype(np.float32)).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(x[..., 0], np.asarray(pillow), atol=2e-3)


def test_grey_is_luma_and_grey_becomes_three_equal_channels() -> None:
    raw = image()
    grey = transform.apply([{"step": "channels", "count": 1}], raw)
    np.testing.assert_allclose(grey[..., 0], np.asarray(Image.fromarray(raw).convert("L")), atol=1.0)
    three = transform.apply([{"step": "channels", "count": 3}], image(channels=1))
    assert three.shape == (17, 9, 3)
    assert (three == image(channels=1)).all()


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(1, 24), width=st.integers(1, 24), channels=st.sampled_from([1, 3]),
    picked=st.lists(st.sampled_from([*CHAIN[1:3], {"step": "resize", "height": 7, "width": 5}]), max_size=3),
)  # fmt: skip
def test_check_tells_the_shape_and_a_batch_equals_its_samples(
    height: int, width: int, channels: int, picked: list[dict[str, object]]
) -> None:
    batch = image(height, width, channels, count=3)
    x = transform.apply(picked, batch)
    assert x.shape == (3, *steps.check(picked, batch.shape[1:], "uint8"))
    for one, raw in zip(x, batch, strict=True):
        assert one.tobytes() == transform.apply(picked, raw).tobytes()


def test_the_bits_never_change() -> None:
    """Pinned: a bundle's golden samples rest on these bits, on every machine and numpy."""
    x = transform.apply(CHAIN, image())
    assert hashlib.sha256(x.tobytes()).hexdigest() == "3932ae03cb8022827e6b9ba0d6eb022281e09c956be03b173b42763ccb58d595"


def test_the_raw_sample_is_left_alone() -> None:
    raw = image().astype(np.float32)
    before = raw.copy()
    transform.apply(CHAIN, raw)
    transform.apply([{"step": "normalize", "mean": [1.0], "std": [2.0]}], raw)
    assert (raw == before).all()


def test_no_steps_give_float32() -> None:
    x = transform.apply([], image())
    assert x.dtype == np.float32
    assert (x == image()).all()


def test_layout_moves_channels_and_is_contiguous() -> None:
    x = image(count=2).astype(np.float32)
    moved = transform.to_layout(x, "NCHW")
    assert moved.shape == (2, 3, 17, 9)
    assert moved.flags.c_contiguous
    assert (moved[:, 2] == x[..., 2]).all()
    assert transform.to_layout(x, "NHWC").shape == x.shape


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"step": "scal", "factor": 1.0}, ["preprocess[0]", "'scal'", '"scale"']),
        ({"step": "scale", "facter": 1.0}, ["facter", '"factor"']),
        ({"step": "scale"}, ["scale", "missing", "factor"]),
        ({"step": "scale", "factor": 0}, ["factor", "got 0"]),
        ({"step": "scale", "factor": float("nan")}, ["factor", "nan"]),
        ({"step": "scale", "factor": 1e300}, ["factor", "1e+300"]),
        ({"step": "scale", "factor": True}, ["factor", "True"]),
        ({"step": "resize", "height": 0, "width": 4}, ["height", "got 0"]),
        ({"step": "resize", "height": 4, "width": 4.5}, ["width", "4.5"]),
        ({"step": "channels", "count": 2}, ["count", "got 2"]),
        ({"step": "normalize", "mean": [0.0, 0.0], "std": [1.0]}, ["mean", "1 or 3"]),
        ({"step": "normalize", "mean": [0.0], "std": [1.0, 0.0, 1.0]}, ["std", "above 0"]),
        ({"step": "normalize", "mean": 0.5, "std": [1.0]}, ["mean", "0.5"]),
        ({"factor": 1.0}, ["preprocess[0]"]),
        ("scale", ["preprocess[0]", "'scale'"]),
    ],
)
def test_a_wrong_step_is_named_with_value_and_fix(step: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        steps.check([step], (8, 8, 3), "uint8")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "dtype", "word"),
    [((1, 8, 8, 3), "uint8", "[1, 8, 8, 3]"), ((8, 8, 4), "uint8", "4 channels"), ((8, 0, 1), "uint8", "[8, 0, 1]"),
     ((8, 8, 1), "float64", "float64"), ((8, 0), "float32", "[8, 0]"), ((8, 8, 1, 1), "float32", "[8, 8, 1, 1]")],
)  # fmt: skip
def test_a_wrong_raw_spec_is_refused(shape: tuple[int, ...], dtype: str, word: str) -> None:
    with pytest.raises(InputError, match="raw") as caught:
        steps.check([], shape, dtype)
    assert word in str(caught.value)


@pytest.mark.parametrize("name", ["resize", "channels"])
def test_image_steps_refuse_vectors(name: str) -> None:
    step = {"step": "resize", "height": 2, "width": 2} if name == "resize" else {"step": "channels", "count": 1}
    with pytest.raises(InputError, match=f"{name}.*vector"):
        steps.check([step], (16,), "float32")
    with pytest.raises(InputError, match=f"{name}.*a window of shape"):
        steps.check([step], (16, 3), "float32")


def test_windows_are_scaled_and_normalized_by_channel() -> None:
    raw = np.arange(12, dtype=np.float32).reshape(4, 3)
    each = {"step": "normalize", "mean": [0.0, 1.0, 2.0], "std": [1.0, 2.0, 3.0]}
    assert steps.check([{"step": "scale", "factor": 2.0}, each], (4, 3), "float32") == (4, 3)
    assert transform.apply([each], raw).tolist() == [[3.0 * row, 1.5 * row, row] for row in range(4)]
    with pytest.raises(InputError, match="list of 1 or 3 numbers"):
        steps.check([{**each, "mean": [0.0] * 4}], (4, 3), "float32")
    with pytest.raises(InputError, match="log_mel: works on sounds"):
        log_mel = {"rate_hz": 8, "window_samples": 2, "hop_samples": 1, "fft_samples": 2, "mels": 1}
        steps.check([{"step": "log_mel", **log_mel, "low_hz": 0, "high_hz": 4, "floor": 1e-6}], (4, 3), "float32")
