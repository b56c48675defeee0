"""The server changes uvicorn's connection from within, so the release is fixed, and what it changes is there."""

from __future__ import annotations

import tomllib
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.device.commands.serve import UVICORN
from edgekit.serve.protocol import GuardedProtocol
from tests.conftest import ROOT

PRIVATE = ("_start_asgi_task", "_unset_keepalive_if_required")


def test_every_extra_admits_the_release_that_is_checked_alone() -> None:
    major, minor = map(int, UVICORN.split("."))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].values()
    ranges = [Requirement(line).specifier for extra in extras for line in extra if Requirement(line).name == "uvicorn"]
    assert ranges
    for allowed in ranges:
        assert f"{UVICORN}.0" in allowed and f"{major}.{minor + 1}.0" not in allowed


def test_what_is_replaced_or_called_from_within_is_there() -> None:
    for name in PRIVATE:
        assert callable(getattr(HttpToolsProtocol, name))
    own = [name for name in vars(GuardedProtocol) if name in vars(HttpToolsProtocol)]
    assert "_start_asgi_task" in own and "data_received" in own
