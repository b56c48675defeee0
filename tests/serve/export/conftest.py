"""The handmade bundles of the runner's tests, and `edgekit export` as a call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from edgekit.cli.app import app
from tests.runner.conftest import bundles, models, write_bundle

__all__ = ["bundles", "models", "write_bundle"]
Export = Callable[..., Result]


@pytest.fixture
def export() -> Export:
    """`export("triton", bundle, out, "--backend", "python")`; what it printed, and its exit code."""

    def run(server: str, bundle: Path, out: Path, *options: str) -> Result:
        return CliRunner().invoke(app, ["export", server, str(bundle), "--out", str(out), *options])

    return run


def watching(server: str, out: Path, *options: str) -> Result:
    """`edgekit export prometheus OUT …`, or grafana: what takes no bundle."""
    return CliRunner().invoke(app, ["export", server, str(out), *options])


def written(folder: Path) -> list[str]:
    """Every file below a folder, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
