"""Field reports as a device would write them, for tests: the example of notebook 08 with changes."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

from edgekit.device.monitor.histogram import bucket_index
from edgekit.report.field.reports import FieldReport
from tests.conftest import ROOT

EXAMPLES = ROOT / "notebooks" / "field"


def example(name: str = "camera-7-march") -> dict[str, Any]:
    """The content of one of the examples."""
    result: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text())
    return result


def field_report(name: str = "then", verdict: dict[str, Any] | None = None, **changes: Any) -> FieldReport:
    """A healthy report without a monitor; a change is `group__key=value`, or `key=value` at the top."""
    content = copy.deepcopy(example())
    del content["sketch"], content["verdict"]
    content["machine"]["first"]["temperature_c"] = content["machine"]["last"]["temperature_c"] = None
    for key, value in changes.items():
        *groups, last = key.split("__")
        where = content
        for group in groups:
            where = where[group]
        where[last] = value
    if verdict is not None:
        content["verdict"] = verdict
    return FieldReport(name, content)


def counted(values_ms: np.ndarray) -> list[list[int]]:
    """Latencies as a report counts them: [[place, count], …]."""
    places, counts = np.unique([bucket_index(each) for each in values_ms.tolist()], return_counts=True)
    return [[int(each), int(count)] for each, count in zip(places, counts, strict=True)]


def latencies(median_ms: float, answers: int = 2000, seed: int = 1, part: str = "execute") -> dict[str, Any]:
    """`latency_ms` of a report whose part has this median; whole is the same."""
    values_ms = median_ms * np.exp(0.2 * np.random.default_rng(seed).normal(size=answers))
    return {part: {"counts": counted(values_ms)}, "whole": {"counts": counted(values_ms)}}


def finding(statistic: str, alarm: bool = True, text: str = "") -> dict[str, Any]:
    """One of a verdict."""
    return {"statistic": statistic, "alarm": alarm, "evidence": 3.0 if alarm else 0.1, "here": 0.2, "there": [0.4, 0.5],
            "text": text or f"{statistic} changed"}  # fmt: skip


def monitor_verdict(level: str, *findings: dict[str, Any], canary: dict[str, Any] | None = None) -> dict[str, Any]:
    """A monitor's verdict."""
    return {"level": level, "reason": "said so", "samples": 500, "findings": list(findings), "canary": canary}
