"""A workstation with keys, a policy and a signed bundle, of which each test has its own copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.device.trust.workstation import Workstation, set_up


@pytest.fixture(scope="session")
def prepared_workstation(tmp_path_factory: pytest.TempPathFactory) -> Workstation:
    return set_up(tmp_path_factory.mktemp("workstation"))


@pytest.fixture
def workstation(prepared_workstation: Workstation, tmp_path: Path) -> Workstation:
    """A copy that the test may change."""
    return Workstation(Path(shutil.copytree(prepared_workstation.home, tmp_path / "workstation")))
