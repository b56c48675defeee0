"""Smoothing chosen on validation: each candidate evaluated on the same windows, in the order of time.

Where a class is the background: the fewest false alarms among those that detect no fewer events than answers without
smoothing do, up to `smoothing.detection_drop_pp`. Of equals, the most events, then the shortest
delay, then the highest accuracy. That is a point
on the curve of misses against false alarms by which keyword spotting is evaluated (`edgekit/core/stream_events.py`).
Elsewhere: the highest accuracy of the smoothed answers. A last tie goes to the first candidate, and the first of all
is no smoothing. The figures of what is chosen are flattered: it is the best of several on these windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.core import stream_events
from edgekit.core.schema.streams import Smoothed, Streamed
from edgekit.core.stream_events import Counted
from edgekit.runner.bundle.manifest import Manifest
from edgekit.stages.bundle.config import Config
from edgekit.stages.bundle.streams import Played, said

Way = dict[str, Any] | None


def evaluate(
    played: Played, outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, config: Config
) -> Streamed:
    """The candidates of the config beside no smoothing; `outputs` and `samples` in the order of time."""
    tolerance = played.spans if config.stream.tolerance_windows is None else config.stream.tolerance_windows
    asked = config.smoothing
    ways: list[Way] = [None, *(asked.candidates(config.task) if asked else [])]
    told = [said(outputs, samples, manifest, way) for way in ways]
    right = [float((labels == played.truth).mean()) for labels in told]
    counts = [
        stream_events.count(labels, played.truth, played.pieces, played.rest, tolerance, played.spans)
        for labels in told
        if played.rest is not None
    ]
    kept, reasons, rule = len(ways) - 1, [""] * len(ways), "as declared" if asked else "nothing to choose"
    if asked and asked.choose is not None:
        rule = "fewest false alarms" if counts else "highest accuracy"
        kept, reasons = by_events(counts, right, asked.detection_drop_pp) if counts else by_accuracy(right)
    confidence = config.budget.accuracy_confidence
    first = counts[0] if counts else None
    hours = first.outside * played.hop_s / 3600 if first and played.hop_s else None
    return {
        "split": "validation",
        "windows": len(played.truth),
        "pieces": int(played.pieces[-1]) + 1,
        "hop": played.hop,
        "hop_s": played.hop_s,
        "background": None if played.rest is None else manifest.labels[played.rest],
        "events": first.events if first else None,
        "hours": hours,
        "windows_outside": first.outside if first else None,
        "tolerance_windows": tolerance,
        "repeat_windows": played.spans,
        "confidence": confidence,
        "rule": rule,  # type: ignore[typeddict-item]  # one of those that it has
        "candidates": [
            _row(way, accuracy, counts[place] if counts else None, hours, confidence, place == kept, reasons[place])
            for place, (way, accuracy) in enumerate(zip(ways, right, strict=True))
        ],
    }


def by_events(counts: Sequence[Counted], right: Sequence[float], drop_pp: float) -> tuple[int, list[str]]:
    """Which to keep, and why each other is not; the first is no smoothing."""
    least = counts[0].detected - drop_pp / 100 * counts[0].events
    able = [place for place, each in enumerate(counts) if each.detected >= least - 1e-9]
    best = min(able, key=lambda place: (*_costs(counts[place]), -right[place], place))
    reasons = []
    for place, each in enumerate(counts):
        if place == best:
            reasons.append("")
        elif place not in able:
            reasons.append(f"detects {counts[0].detected - each.detected} events fewer")
        elif each.false_alarms > counts[best].false_alarms:
            reasons.append("more false alarms")
        else:
            reasons.append("later, or no better")
    return best, reasons


def by_accuracy(right: Sequence[float]) -> tuple[int, list[str]]:
    """The same by shares of windows that are answered rightly."""
    best = max(range(len(right)), key=lambda place: (right[place], -place))
    reasons = ["" if place == best else _less(share, right[best]) for place, share in enumerate(right)]
    return best, reasons


def _less(share: float, best: float) -> str:
    return "less accurate" if share < best else "no better"


def _costs(each: Counted) -> tuple[int, int, float]:
    return each.false_alarms, -each.detected, float(np.mean(each.delays)) if each.delays else 0.0


def _row(
    way: Way, accuracy: float, each: Counted | None, hours: float | None, confidence: float, kept: bool, reason: str
) -> Smoothed:
    alarms = each.false_alarms if each else None
    rated = alarms is not None and bool(hours)
    return {
        "smoothing": way,
        "accuracy": accuracy,
        "detected": each.detected if each else None,
        "delay_windows": float(np.mean(each.delays)) if each and each.delays else None,
        "false_alarms": alarms,
        "per_hour": alarms / hours if alarms is not None and rated and hours else None,
        "per_hour_at_most": stream_events.at_most(alarms, confidence) / hours if alarms is not None and hours else None,
        "alarmed_share": each.alarmed / each.outside if each and each.outside else None,
        "kept": kept,
        "reason": reason,
    }
