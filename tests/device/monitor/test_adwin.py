"""ADWIN finds a change soon after it, says what the mean was and is, and needs little memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from edgekit.device.monitor.adwin import Adwin
from edgekit.device.monitor.confidence import ConfidenceMonitor


def confidences(seed: int) -> list[float]:
    """Of a model that gets worse, and then better than it was."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(0.8, 0.1, 3000), rng.normal(0.62, 0.12, 1500), rng.normal(0.9, 0.05, 2000)]
    values: list[float] = np.concatenate(parts).clip(0, 1).tolist()
    return values


@pytest.mark.parametrize(
    ("delta", "seed", "places"),
    [
        *((0.002, seed, [3071, 4543]) for seed in range(3)),
        (1e-7, 0, [3135, 4607]),
        (1e-7, 1, [3135, 4575]),
        (1e-7, 2, [3135, 4607]),
    ],
)
def test_it_finds_both_changes_where_river_finds_them(delta: float, seed: int, places: list[int]) -> None:
    """The places are those of `river.drift.ADWIN`, release 0.26.1, on the same values."""
    own = Adwin(delta)
    assert [place for place, value in enumerate(confidences(seed)) if own.update(value)] == places


def test_it_says_what_the_mean_was_and_is() -> None:
    found = ConfidenceMonitor()
    found.take(confidences(0)[:4000])
    assert found.change is not None and found.change["at"] == 3136
    assert found.change["before"] == pytest.approx(0.8, abs=0.02) and found.change["since"] < 0.75


def test_stable_confidences_give_no_alarm() -> None:
    found = ConfidenceMonitor()
    found.take(np.random.default_rng(0).normal(0.8, 0.1, 20_000).clip(0, 1).tolist())
    assert found.change is None


def test_its_memory_grows_with_the_logarithm_of_the_stream() -> None:
    own, rng = Adwin(), np.random.default_rng(0)
    sizes = []
    for _ in range(2):
        for value in rng.normal(0.8, 0.1, 10_000).tolist():
            own.update(value)
        sizes.append(len(pickle.dumps(own)))
    assert own.width == 20_000 and sizes[1] < 1.2 * sizes[0] < 2000
