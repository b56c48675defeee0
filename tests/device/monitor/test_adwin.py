"""ADWIN finds the changes that river's finds, at the same samples."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.monitor.adwin import Adwin
from tests import requirements

pytestmark = pytest.mark.needs(package="river")


def confidences(seed: int) -> list[float]:
    """Of a model that gets worse, and then better than it was."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(0.8, 0.1, 3000), rng.normal(0.62, 0.12, 1500), rng.normal(0.9, 0.05, 2000)]
    values: list[float] = np.concatenate(parts).clip(0, 1).tolist()
    return values


@pytest.mark.parametrize("delta", [0.002, 1e-7])
@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_rivers_finds(seed: int, delta: float) -> None:
    own, other = Adwin(delta), requirements.package("river.drift").ADWIN(delta=delta)
    found: list[int] = []
    expected: list[int] = []
    for place, value in enumerate(confidences(seed)):
        if own.update(value):
            found.append(place)
        other.update(value)
        if other.drift_detected:
            expected.append(place)
    assert len(expected) >= 2 and found == expected


def test_it_says_what_the_mean_was_and_is() -> None:
    own = Adwin()
    moved = []
    for value in confidences(0):
        if own.update(value) and own.moved is not None:
            moved.append(own.moved)
    assert moved[0][0] == pytest.approx(0.8, abs=0.02) and moved[0][1] < 0.75


def test_its_memory_grows_with_the_logarithm_of_the_stream() -> None:
    own, rng = Adwin(), np.random.default_rng(0)
    for value in rng.normal(0.8, 0.1, 20_000).tolist():
        own.update(value)
    assert own.width == 20_000 and sum(map(len, own._rows)) <= 6 * 15
