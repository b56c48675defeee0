"""Boxes, masks, pictures, spectrograms, resampling and smoothing have the stored bits on Arm, with numpy 1 and 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runner import same_bits
from tests.runner.test_same_bits import EXPECTED

from .device import Device
from .test_input_path import WITH_PILLOW

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]


@pytest.fixture(scope="module", params=WITH_PILLOW)
def interpreter(request: pytest.FixtureRequest) -> str:
    """One beside numpy 2 and one beside numpy 1."""
    name: str = request.param
    return name


def test_the_runner_computes_the_stored_bits(device: Device, runner: Path) -> None:
    done = device.run(same_bits.__file__, runner)
    assert done.returncode == 0, done.stderr[-2000:]
    assert same_bits.differences(json.loads(done.stdout), EXPECTED, has_pillow=True) == []
