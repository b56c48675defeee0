"""The server builds on uvicorn's connection, so the release is fixed; what it replaces and calls there is public."""

from __future__ import annotations

import inspect

import tomllib
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.device.commands.serve import UVICORN
from edgekit.serve.connection import GuardedProtocol
from tests.conftest import ROOT


def test_every_extra_admits_the_release_that_is_checked_alone() -> None:
    major, minor = map(int, UVICORN.split("."))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].values()
    ranges = [Requirement(line).specifier for extra in extras for line in extra if Requirement(line).name == "uvicorn"]
    assert ranges
    for allowed in ranges:
        assert f"{UVICORN}.0" in allowed and f"{major}.{minor + 1}.0" not in allowed


def test_nothing_private_of_uvicorn_is_replaced_or_called() -> None:
    private = {name for name in vars(HttpToolsProtocol) if name.startswith("_") and not name.startswith("__")}
    assert private, "uvicorn has no private names any more"
    assert not private & vars(GuardedProtocol).keys()
    assert not [name for name in private if name in inspect.getsource(GuardedProtocol)]
