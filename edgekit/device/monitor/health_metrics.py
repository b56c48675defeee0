"""The monitor's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.verdict import Verdict


def health_families(verdict: Verdict, sketch: Mapping[str, Any], **extra_labels: str) -> list[Family]:
    """Return the health, the evidence and alarm of each statistic, and the canary's counts, with `extra_labels`."""
    drift = [({**extra_labels, "statistic": each.statistic}, each) for each in verdict.findings]
    families = [
        Family(
            "edgekit_health",
            "gauge",
            "0 healthy, 1 warning, 2 wrong, -1 too early to say",
            [("", extra_labels, verdict.health)],
        ),
        Family(
            "edgekit_drift",
            "gauge",
            "Evidence that a statistic differs from validation: -log10 of the corrected p-value",
            [("", labels, each.evidence) for labels, each in drift],
        ),
        Family(
            "edgekit_drift_alarm",
            "gauge",
            "1 if the evidence is an alarm",
            [("", labels, int(each.alarm)) for labels, each in drift],
        ),
        Family("edgekit_watched_samples_total", "counter", "Samples examined", [("", extra_labels, verdict.samples)]),
    ]
    if sketch["canary"] is None:
        return families
    canary = sketch["canary"]
    for name, key, kind, text in (
        ("runs_total", "runs", "counter", "Golden samples that were run while in use"),
        ("failures_total", "failures", "counter", "Golden samples that were not answered as recorded"),
        (
            "last_success_timestamp_seconds",
            "last_success_s",
            "gauge",
            "Time when a golden sample last gave its recorded answer",
        ),
    ):
        if canary[key] is not None:
            families.append(Family(f"edgekit_canary_{name}", kind, text, [("", extra_labels, canary[key])]))
    return families
