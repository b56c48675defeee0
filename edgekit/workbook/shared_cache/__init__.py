"""Caches shared between machines: finished stages are pushed to a folder or an object store and pulled from it."""

from edgekit.workbook.shared_cache.cache import SharedCache, open_cache

__all__ = ["SharedCache", "open_cache"]
