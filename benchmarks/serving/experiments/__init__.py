"""The experiments, by name. Each module has `TITLE` and `measure(plan)`, which gives a Finding."""

from __future__ import annotations

NAMES = ("peers", "interpreter", "batcher", "rest", "overload", "forms")
"""In the order of the report."""
