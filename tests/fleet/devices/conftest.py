"""Devices behind a real sshd, and this process as the workstation that reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.devices.rig import Rig, need_rig


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Four devices, started once for each test module."""
    need_rig()
    with Rig(tmp_path_factory.mktemp("rig") / "rig", 4) as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Four devices; HOME of this process is that of the rig's workstation, with its keys and known_hosts."""
    monkeypatch.setenv("HOME", str(shared_rig.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return shared_rig


@pytest.fixture(scope="session")
def large() -> bytes:
    """3 MB of random bytes, which cannot be compressed."""
    return Path("/dev/urandom").open("rb").read(3_000_000)
