"""Bundles that hold the tiny network of `tests/runner`."""

from tests.runner.conftest import bundles, models, write_bundle

__all__ = ["bundles", "models", "write_bundle"]
