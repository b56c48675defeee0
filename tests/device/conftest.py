"""The handmade bundles of the runner's tests."""

from tests.runner.conftest import bundles, made, shared, write_bundle

__all__ = ["bundles", "made", "shared", "write_bundle"]
