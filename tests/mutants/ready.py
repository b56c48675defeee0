"""A pytest plugin that spares the mutation check most of its time: the tiny run starts from the control's.

`edgekit run` then makes again what the fault's own code shapes, by its stage keys, and reuses the rest. A fault can
only hide behind that, never be imputed; the notebooks run from scratch where no test has noticed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

READY = "MUTANTS_READY_RUN"
"""Folder of a finished tiny run to begin with."""
KEEP = "MUTANTS_KEEP_RUN"
"""Folder to leave the tiny run in, for others to begin with."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Stand between the fixture `tiny_run` and its command."""
    if fixturedef.argname != "tiny_run":
        return (yield)
    conftest: Any = sys.modules["tests.conftest"]
    command = conftest.run_edgekit
    ready, keep = (Path(os.environ[name]) if os.environ.get(name) else None for name in (READY, KEEP))

    def run_edgekit(*arguments: str) -> Any:
        out = Path(arguments[-1])
        if ready and ready.is_dir():
            shutil.copytree(ready, out, dirs_exist_ok=True)
        done = command(*arguments)
        if keep and not keep.exists():
            shutil.copytree(out, keep)
            (keep / "stderr").write_text(done.stderr)
        if ready and ready.is_dir():
            done.stderr = (ready / "stderr").read_text() + done.stderr
        return done

    conftest.run_edgekit = run_edgekit
    try:
        return (yield)
    finally:
        conftest.run_edgekit = command
