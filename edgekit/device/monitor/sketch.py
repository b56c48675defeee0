"""Sketches: what a monitor has seen, as a few kB of JSON that can be merged across devices or days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.monitor.reference import Reference

FORMAT = 1
BINS = 16
"""Bins of the histogram of ranks. Each holds a sixteenth of the reference."""
MALFORMED_ERRORS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""Errors that reading an edited sketch may raise."""
COUNTS = ("samples", "refused", "failed", "dropped")


def check_sketch(sketch: Mapping[str, Any], reference: Reference) -> None:
    """Raise InputError unless it is a sketch of this reference's statistics."""
    try:
        matches = sketch["format"] == FORMAT and sketch["reference"] == reference.digest
        matches = matches and list(sketch["statistics"]) == reference.names
    except (KeyError, TypeError):
        matches = False
    if not matches:
        raise InputError(
            "sketch: got something other than a sketch of this bundle; give the result of "
            "`Monitor.sketch` of the same bundle"
        )


def merge_sketches(sketches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge sketches of the same bundle: counts are added, and the latest window with the strongest evidence is kept.

    That evidence is reduced, because the strongest of several is high by chance.
    """
    if not sketches:
        raise InputError("sketches: got none; give at least one")
    first = sketches[0]
    try:
        if any(each["reference"] != first["reference"] for each in sketches):
            raise InputError("sketches: got sketches of different bundles; merge only those of one bundle")
        parts = sum(each["parts"] for each in sketches)
        selection = log10(parts / min(each["parts"] for each in sketches))
        merged: dict[str, Any] = {"format": FORMAT, "reference": first["reference"], "parts": parts}
        merged |= {name: sum(each[name] for each in sketches) for name in COUNTS}
        merged["statistics"] = {
            name: _statistic([each["statistics"][name] for each in sketches], selection) for name in first["statistics"]
        }
        _add_classes(merged, sketches, selection)
        merged["recent"] = _recent([each["recent"] for each in sketches])
        changes = [each["confidence"] for each in sketches if each.get("confidence")]
        merged["confidence"] = max(changes, key=lambda each: abs(each["before"] - each["since"]), default=None)
        canaries = [each["canary"] for each in sketches if each.get("canary")]
        merged["canary"] = _canary(canaries) if canaries else None
    except MALFORMED_ERRORS as error:
        raise InputError(
            f"sketches: one of them is not a sketch ({type(error).__name__}: {error}); give the results of `sketch`"
        ) from None
    return merged


def _statistic(parts: Sequence[Mapping[str, Any]], selection: float) -> dict[str, Any]:
    bins = [sum(each) for each in zip(*(part["bins"] for part in parts))]
    merged: dict[str, Any] = {"bins": bins, "sum": sum(part["sum"] for part in parts)}
    latest = [part["latest"] for part in parts if part.get("latest")]
    if latest:
        strongest = max(latest, key=lambda each: max(each["evidence"]))
        merged["latest"] = {**strongest, "evidence": [max(0.0, each - selection) for each in strongest["evidence"]]}
    return merged


def _add_classes(merged: dict[str, Any], sketches: Sequence[Mapping[str, Any]], selection: float) -> None:
    if sketches[0].get("classes") is None:
        return
    merged["classes"] = {name: sum(each["classes"][name] for each in sketches) for name in sketches[0]["classes"]}
    latest: dict[str, list[float]] = {}
    for sketch in sketches:
        for label, (here, there, evidence) in sketch["classes_latest"].items():
            if label not in latest or evidence - selection > latest[label][2]:
                latest[label] = [here, there, max(0.0, evidence - selection)]
    merged["classes_latest"] = latest


def _recent(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = max(parts, key=lambda each: each["refused"] / max(1, each["of"]))
    return dict(worst)


def _canary(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    failed = [each for each in parts if not each["ok"]]
    times = [each["last_success_s"] for each in parts if each["last_success_s"] is not None]
    return {
        **(failed or parts)[0],
        "runs": sum(each["runs"] for each in parts),
        "failures": sum(each["failures"] for each in parts),
        "last_success_s": max(times, default=None),
    }
