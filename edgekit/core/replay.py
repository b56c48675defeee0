"""Decisions of an earlier run that a run must follow. `edgekit reproduce` writes them to the run's folder beforehand.

A decision that rests on a measurement cannot be reproduced, because a measurement on another day differs. So the
decision is replayed as it was recorded, and today's measurement is reported beside it.
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
"""The stages whose decisions rest on measurements, and the fields under `measured` in their decision.json."""
DEVICE_DECISIONS = "on_devices"
"""A further field of the benchmark stage. It is present if devices decided, and holds their record and the decisions.
"""


def read(folder: Path, stage: str) -> dict[str, Any] | None:
    """Return the recorded decisions of a stage in the run of this folder, or None if there are none.

    Raises
    ------
    TrustError
        The file was not written by `write`.
    """
    decisions = read_all(folder).get(stage)
    return dict(decisions) if decisions is not None else None


def read_all(folder: Path) -> dict[str, Any]:
    """Return all decisions to replay by stage; an empty dictionary if there are none.

    Raises
    ------
    TrustError
        The file has another structure.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        is_valid = bool(values) and all(_is_valid(stage, value) for stage, value in values.items())
    except (ValueError, AttributeError):
        is_valid = False
    if not is_valid:
        raise TrustError(
            f"{path}: not a record of decisions of this version of edgekit; remove it, or run `edgekit reproduce` "
            "again with the edgekit that made the bundle"
        )
    return dict(values)


def write(folder: Path, measured: Mapping[str, Any]) -> None:
    """Make the run in `folder` follow the given decisions, which are listed by stage."""
    make_folder(folder)
    write_json(folder / FILE, measured)


def _is_valid(stage: str, value: Any) -> bool:
    fields = DECISION_FIELDS.get(stage)
    if fields is None or not isinstance(value, dict) or set(value) - {DEVICE_DECISIONS} != set(fields):
        return False
    if DEVICE_DECISIONS in value and (stage != "benchmark" or not isinstance(value[DEVICE_DECISIONS], dict)):
        return False
    return all(isinstance(value[name], kind) for name, kind in fields.items())
