"""The names for `--head`: each has a meaning of its own, and the guide lists all of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from edgekit.core import detector_names
from edgekit.core.detector_names import FAMILIES, ORDERS, PLACES
from edgekit.core.errors import ConfigError

GUIDE = Path(__file__).parents[2] / "docs/how-to/detection.md"


@pytest.mark.parametrize("structure", ["plain", "objectness", "background", "finished"])
def test_the_name_of_outputs_names_these_outputs_only(structure: detector_names.Structure) -> None:
    for place, order in product(PLACES, ORDERS):
        name = detector_names.parse(detector_names.name_of(structure, place, order))
        fitting = [each for each in product(PLACES, ORDERS) if name.fits(structure, *each)]
        assert fitting == [(place, order)]
        assert not any(name.fits(other, place, order) for other, _ in FAMILIES.values() if other != structure)


@pytest.mark.parametrize("text", ["", "yolov4", "yolov8, corners", "yolov8,", "corners in pixels"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"got '.*'"):
        detector_names.parse(text)


def test_the_guide_lists_every_name() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert [name for name in FAMILIES if f"`{name}`" not in guide] == []
