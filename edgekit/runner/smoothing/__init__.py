"""Answers over time: what a bundle declares under `smoothing`, one file for each method, its name is the key.

Only streams are smoothed, never single files. Each file offers

    maker(options, manifest) -> function from the answer to a window to the answer at that time

The function keeps what it needs of the windows before, so each stream has its own. Its answers are of the same kind,
and the window's own stands beside them. Windows that were dropped or refused do not count. Sums are of Python's floats,
in the order of time. `bundle/smoothing_rules.py` says what may be declared.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

Smoother = Callable[[Any], Any]


def maker(manifest: Manifest) -> Smoother | None:
    """The function for a new stream; None where the bundle declares no smoothing."""
    if manifest.smoothing is None:
        return None
    method: str = manifest.smoothing["method"]
    made: Smoother = importlib.import_module(f"{__name__}.{method}").maker(manifest.smoothing, manifest)
    return made


def facts(smoothed: Any) -> dict[str, Any]:
    """A smoothed answer for JSON, without what the window's own answer says already."""
    found: dict[str, Any] = smoothed.to_dict()
    return {key: value for key, value in found.items() if key not in ("scores", "timing_ms")}
