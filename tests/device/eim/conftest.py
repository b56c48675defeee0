"""The handmade bundles of the runner's tests, and bundles for each kind of sample that clients send."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner import flat
from tests.runner.conftest import bundles, models, write_bundle
from tests.serve.export import detectors

__all__ = ["bundles", "models", "write_bundle"]


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle for each kind of sample, and a detector."""
    folder = tmp_path_factory.mktemp("kinds")
    paths = flat.kinds(folder)
    return {**{name: paths[name] for name in ("image", "vector", "audio", "window")}, "boxes": detectors.write(folder)}
