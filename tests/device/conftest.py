"""The handmade bundles of the runner's tests."""

from tests.runner.conftest import bundles, models, shared, write_bundle

__all__ = ["bundles", "models", "shared", "write_bundle"]
