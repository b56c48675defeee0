"""Bundles that hold the tiny network of `tests/runner`."""

from tests.runner.conftest import bundles, made, write_bundle

__all__ = ["bundles", "made", "write_bundle"]
