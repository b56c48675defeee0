"""A sound that is resampled in parts has the bits of the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner.inputs.resampling import Resampler, resample

RATES = [(44100, 16000), (16000, 44100), (48000, 16000), (8000, 16000), (11025, 8000), (10, 640)]
ODD = [(44099, 16000), (640, 10)]
"""Whose filters are so long that they are not kept, or take most of the time."""


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
@settings(max_examples=12, deadline=None)
@given(parts=st.lists(st.integers(0, 700), max_size=8))
def test_any_parts_have_the_bits_of_the_whole(from_hz: int, to_hz: int, parts: list[int]) -> None:
    compare(from_hz, to_hz, parts)


@pytest.mark.parametrize(("from_hz", "to_hz"), ODD)
def test_long_filters_too(from_hz: int, to_hz: int) -> None:
    compare(from_hz, to_hz, [300, 0, 5, 400])


def compare(from_hz: int, to_hz: int, parts: list[int]) -> None:
    """AssertionError where the bits of the parts are not those of the whole."""
    x = np.random.default_rng(sum(parts)).uniform(-1, 1, sum(parts)).astype(np.float32)
    resampler = Resampler(from_hz, to_hz)
    made = [resampler.push(part) for part in np.split(x, np.cumsum(parts)[:-1])] if parts else []
    made.append(resampler.finish())
    assert np.concatenate(made).tobytes() == resample(x, from_hz, to_hz).tobytes()


@pytest.mark.parametrize(("from_hz", "to_hz"), [(44100, 16000), (8000, 16000)])
def test_what_comes_out_lags_by_half_of_the_filter(from_hz: int, to_hz: int) -> None:
    """64 crossings of the lower rate."""
    resampler = Resampler(from_hz, to_hz)
    made = sum(len(resampler.push(np.zeros(441, np.float32))) for _ in range(100))
    lag_s = 44100 / from_hz - made / to_hz
    assert 0 < lag_s <= 66 / min(from_hz, to_hz)


def test_a_sample_beyond_the_range_ends_the_clipping_from_there() -> None:
    """The whole sound is then not clipped at all; a stream cannot take back what it gave."""
    x = np.sign(np.sin(np.arange(4000))).astype(np.float32)
    x[3000] = 1.5
    resampler = Resampler(44100, 16000)
    early = resampler.push(x[:2000])
    late = np.concatenate([resampler.push(x[2000:]), resampler.finish()])
    whole = resample(x, 44100, 16000)
    np.testing.assert_array_equal(early, np.clip(whole[: len(early)], -1, 1))
    np.testing.assert_array_equal(late, whole[len(early) :])
    assert np.abs(whole[: len(early)]).max() > 1
