"""Recorded decisions to follow: what `edgekit reproduce` puts into a run's folder before it walks.

A decision that rests on a measurement cannot be rebuilt, for another day measures differently. It is replayed as it
was recorded, and today's measurement is reported beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.core.errors import TrustError
from edgekit.core.hashing import write_json
from edgekit.runner.files import make_folder

FILE = "replay.json"
DECISION_FIELDS: dict[str, dict[str, type]] = {
    "distill": {"in_time": list, "trained": list},
    "prune": {"cuts": list},
    "benchmark": {"winners": dict, "too_slow": list, "buys_nothing": list},
}
"""The stages whose decisions rest on a measurement, and what stands in their decision.json under `measured`."""
DEVICE_DECISIONS = "on_devices"
"""There too where devices decided a benchmark: their record, and the decisions with their evidence."""


def read(folder: Path, stage: str) -> dict[str, Any] | None:
    """What `stage` must decide in the run of this folder, as `SHAPES` has it; None: it is free.

    TrustError for a file that is not what `write` left.
    """
    found = read_all(folder).get(stage)
    return dict(found) if found is not None else None


def read_all(folder: Path) -> dict[str, Any]:
    """All that is to be replayed, by stage, empty where nothing is; TrustError for a file of another shape."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        good = bool(values) and all(_has_shape(stage, value) for stage, value in values.items())
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise TrustError(
            f"{path}: not a record of decisions as this edgekit makes it; remove it, or run `edgekit reproduce` again "
            "with the edgekit that made the bundle"
        )
    return dict(values)


def write(folder: Path, measured: Mapping[str, Any]) -> None:
    """Make the run in `folder` follow these decisions, by stage."""
    make_folder(folder)
    write_json(folder / FILE, measured)


def _has_shape(stage: str, value: Any) -> bool:
    shape = DECISION_FIELDS.get(stage)
    if shape is None or not isinstance(value, dict) or set(value) - {DEVICE_DECISIONS} != set(shape):
        return False
    if DEVICE_DECISIONS in value and (stage != "benchmark" or not isinstance(value[DEVICE_DECISIONS], dict)):
        return False
    return all(isinstance(value[name], kind) for name, kind in shape.items())
