"""The numbers of clients become the bundle's samples, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edgekit.device.eim import features, parameters
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav
from tests.device.eim import running
from tests.runner import flat

SPECS = [
    flat.PICTURE,
    RawSpec("image", (5, 7, 1), "uint8"),
    flat.VECTOR,
    flat.WINDOW,
    RawSpec("vector", (6,), "int8"),
    RawSpec("window", (4, 2), "uint8"),
]


@pytest.mark.parametrize("raw", SPECS, ids=lambda raw: f"{raw.kind} {raw.dtype} {raw.shape}")
@pytest.mark.parametrize("is_shared", [False, True])
def test_samples_come_back_from_a_list_and_from_shared_memory(raw: RawSpec, is_shared: bool) -> None:
    sample = np.arange(-3, 3).astype(np.int8) if raw.dtype == "int8" else flat.examples(raw, 1)[0]
    values = running.features(sample, raw)
    assert len(values) == parameters.feature_count(raw)
    found = features.to_sample(np.array(values, np.float32) if is_shared else values, raw)
    assert found.dtype == sample.dtype and found.shape == sample.shape
    assert (found == sample).all()


def test_the_whitest_pixel_survives_float32() -> None:
    raw = RawSpec("image", (1, 2, 3), "uint8")
    values = np.array([0xFFFFFF, 0xFFFFFE], np.float32)
    assert features.to_sample(values, raw).tolist() == [[[255, 255, 255], [255, 255, 254]]]


def test_colours_become_grey_as_in_pillow() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    values = running.features(picture, RawSpec("image", (64, 64, 3), "uint8"))
    grey = features.to_sample(values, RawSpec("image", (64, 64, 1), "uint8"))
    assert (grey[..., 0] == np.asarray(Image.fromarray(picture).convert("L"))).all()


def test_sound_is_that_of_a_wav_file() -> None:
    numbers = np.arange(-32768, 32768, 13, dtype=np.int16)
    raw = RawSpec("audio", (len(numbers),), "float32", (-1.0, 1.0), sample_rate_hz=8000)
    expected = wav.floats(numbers.tobytes(), wav.PCM, 16)
    assert (features.to_sample(numbers.tolist(), raw) == expected).all()
    assert (features.to_sample(numbers.astype(np.float32), raw) == expected).all()


@pytest.mark.parametrize(
    ("raw", "values", "reason"),
    [
        (flat.VECTOR, [1.0] * 4, "got 4 features; the bundle takes 5"),
        (flat.VECTOR, [1.0, 2.0, "3", 4.0, 5.0], "are not all numbers"),
        (flat.VECTOR, [1.0, None, 3.0, 4.0, 5.0], "are not all numbers"),
        (flat.VECTOR, [1.0, [2.0], 3.0, 4.0, 5.0], "are not all numbers"),
        (flat.VECTOR, [[1.0]] * 5, "are not all numbers"),
        (flat.VECTOR, [10**30, 1, 1, 1, 1], "are not all numbers"),
        (flat.VECTOR, [1.0, float("nan"), 3.0, 4.0, 5.0], "NaN or infinity"),
        (RawSpec("image", (1, 2, 3), "uint8"), [0, 1 << 24], r"feature 1 is 16777216; a pixel 0xRRGGBB is"),
        (RawSpec("image", (1, 2, 3), "uint8"), [-1, 0], "feature 0 is -1;"),
        (RawSpec("image", (1, 2, 1), "uint8"), [0.5, 0], "feature 0 is 0.5;"),
        (RawSpec("vector", (2,), "int8"), [0, 128], "feature 1 is 128; a int8 is a whole number from -128 to 127"),
    ],
)
def test_what_no_sample_holds_is_refused(raw: RawSpec, values: list[object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        features.to_sample(values, raw)
