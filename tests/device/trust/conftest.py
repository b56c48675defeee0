"""A desk that was set up once; each test has a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.device.trust.desk import Desk, set_up


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return set_up(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def desk(made: Desk, tmp_path: Path) -> Desk:
    """Changed freely by a test."""
    return Desk(Path(shutil.copytree(made.home, tmp_path / "desk")))
