"""A rig of devices for each module that asks, and a desk whose HOME is the rig's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.devices.rig import Rig, need_rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Four devices."""
    need_rig()
    with Rig(tmp_path_factory.mktemp("rig") / "rig", 4) as made:
        yield made


@pytest.fixture
def desk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The same, and this process is at its desk."""
    monkeypatch.setenv("HOME", str(rig.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return rig


@pytest.fixture(scope="session")
def large() -> bytes:
    """3 MB that do not compress."""
    return Path("/dev/urandom").open("rb").read(3_000_000)
