"""Read LoadGen's log files: the detail log, and the trace, which alone has the scheduled time of each query."""

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
    """Read LoadGen's own figures of its run. Raises `StageError` if some of them are missing."""
    values: dict[str, Any] = {}
    for line in (folder / DETAIL_LOG).read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(LINE_PREFIX):
            try:
                entry = json.loads(line.removeprefix(LINE_PREFIX))
            except ValueError:  # LoadGen does not escape quotes in texts, but none of the needed entries has one
                continue
            if entry["key"] in DETAIL_KEYS:
                values[DETAIL_KEYS[entry["key"]]] = entry["value"]
    if missing := sorted(set(DETAIL_KEYS.values()) - set(values)):
        raise StageError(f"LoadGen's log lacks {', '.join(missing)}; is its version other than 6.0?")
    return values


def read_latencies_ms(folder: Path) -> np.ndarray:
    """The latency (n,) of every query from its scheduled arrival to its completion, in the order of arrivals."""
    completions: list[tuple[int, int]] = []
    with open(folder / TRACE_LOG, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if match := SAMPLE_PATTERN.search(line):
                completions.append((int(match[1]), int(match[2])))
    if not completions:
        raise StageError("LoadGen's trace has no query; is its version other than 6.0?")
    return np.array([complete_ns for _, complete_ns in sorted(completions)]) / 1e6
