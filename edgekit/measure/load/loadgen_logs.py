"""What LoadGen writes down: its detail log, and the trace that alone knows when a query was scheduled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import StageError

DETAIL_LOG, TRACE_LOG = "mlperf_log_detail.txt", "mlperf_log_trace.json"
LINE_PREFIX = ":::MLLOG "
SAMPLE_PATTERN = re.compile(r'"name":"Sample","cat":"default","ph":"b".*"sample_seq":(\d+),.*"complete_ns":(\d+)')
DETAIL_KEYS = {
    "loadgen_version": "version",
    "result_validity": "validity",
    "result_query_count": "queries",
    "result_min_duration_met": "min_duration_met",
    "result_min_queries_met": "min_queries_met",
    "early_stopping_met": "early_stopping_met",
    "result_50.00_percentile_latency_ns": "p50_ns",
    "result_99.00_percentile_latency_ns": "p99_ns",
}


def read_detail(folder: Path) -> dict[str, Any]:
    """What LoadGen itself says of its run; StageError where it did not come to a result."""
    said: dict[str, Any] = {}
    for line in (folder / DETAIL_LOG).read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(LINE_PREFIX):
            try:
                entry = json.loads(line.removeprefix(LINE_PREFIX))
            except ValueError:  # a text with a quote in it, which LoadGen does not escape; none that is wanted here
                continue
            if entry["key"] in DETAIL_KEYS:
                said[DETAIL_KEYS[entry["key"]]] = entry["value"]
    if missing := sorted(set(DETAIL_KEYS.values()) - set(said)):
        raise StageError(f"LoadGen's log lacks {', '.join(missing)}; is it another version than 6.0?")
    return said


def read_latencies_ms(folder: Path) -> np.ndarray:
    """Of every query, from its scheduled arrival to its completion, in the order of arrivals, (n,)."""
    found: list[tuple[int, int]] = []
    with open(folder / TRACE_LOG, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if match := SAMPLE_PATTERN.search(line):
                found.append((int(match[1]), int(match[2])))
    if not found:
        raise StageError("LoadGen's trace has no query; is it another version than 6.0?")
    return np.array([complete_ns for _, complete_ns in sorted(found)]) / 1e6
