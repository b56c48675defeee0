"""The server changes uvicorn's connection from within, so the release is fixed, and what it changes is there."""

from __future__ import annotations

import re

import tomllib
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.runner.commands.serve import UVICORN
from edgekit.serve.protocol import GuardedProtocol
from tests.conftest import ROOT

PRIVATE = ("_start_asgi_task", "_unset_keepalive_if_required")


def test_every_list_of_packages_names_the_release_that_is_checked() -> None:
    major, minor = map(int, UVICORN.split("."))
    text = (ROOT / "pyproject.toml").read_text()
    tomllib.loads(text)
    assert set(re.findall(r'"uvicorn([^"]*)"', text)) == {f">={UVICORN},<{major}.{minor + 1}"}
    assert uvicorn.__version__.startswith(f"{UVICORN}.")


def test_what_is_replaced_or_called_from_within_is_there() -> None:
    for name in PRIVATE:
        assert callable(getattr(HttpToolsProtocol, name))
    own = [name for name in vars(GuardedProtocol) if name in vars(HttpToolsProtocol)]
    assert "_start_asgi_task" in own and "data_received" in own
