"""Artifacts shared between machines: finished stages go into a folder or an object store, and come from there."""

from edgekit.workbook.shared_cache.cache import SharedCache, open_cache

__all__ = ["SharedCache", "open_cache"]
