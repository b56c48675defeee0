"""Page and Hinkley's test finds the changes that river's finds, at the same samples."""

from __future__ import annotations

import pytest

from edgekit.device.monitor.page_hinkley import PageHinkley
from tests import requirements

from .test_adwin import confidences

pytestmark = pytest.mark.needs(package="river")


@pytest.mark.parametrize("threshold", [10.0, 50.0])
@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_rivers_finds(seed: int, threshold: float) -> None:
    own, other = PageHinkley(threshold=threshold), requirements.package("river.drift").PageHinkley(threshold=threshold)
    found: list[int] = []
    expected: list[int] = []
    for place, value in enumerate(confidences(seed)):
        if own.update(value):
            found.append(place)
        other.update(value)
        if other.drift_detected:
            expected.append(place)
    assert expected and found == expected
