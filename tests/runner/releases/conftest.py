"""Three sound bundles, and a device for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.releases import device
from tests.runner.releases.device import Device


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version: 1.0.0, 2.0.0 and 3.0.0 of one network."""
    folder = tmp_path_factory.mktemp("sound")
    return {each: device.write(folder / f"{each}.edge.zip", version=each) for each in ("1.0.0", "2.0.0", "3.0.0")}


@pytest.fixture
def empty(tmp_path: Path) -> Device:
    """A device that has received nothing yet."""
    return Device(tmp_path / "home")
