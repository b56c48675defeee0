"""Prometheus metrics, under Triton's names where Triton has them; times are microseconds there, seconds in our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from edgekit.serve.counters import BOUNDS_MS

if TYPE_CHECKING:
    from edgekit.serve.supervisor import Supervisor

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
COUNTS = {
    "nv_inference_request_success": ("success_count", 1, "Requests answered"),
    "nv_inference_count": ("inference_count", 1, "Samples answered"),
    "nv_inference_exec_count": ("execution_count", 1, "Calls of the interpreter"),
    "nv_inference_request_duration_us": ("success_ns", 1000, "Microseconds from a request's arrival to its answer"),
    "nv_inference_queue_duration_us": ("queue_ns", 1000, "Microseconds that requests waited for the model"),
    "nv_inference_compute_input_duration_us": ("compute_input_ns", 1000, "Microseconds of preprocess"),
    "nv_inference_compute_infer_duration_us": ("compute_infer_ns", 1000, "Microseconds of the interpreter"),
    "nv_inference_compute_output_duration_us": ("compute_output_ns", 1000, "Microseconds of postprocess"),
    "nv_cache_num_hits_per_model": ("cache_hit_count", 1, "Requests answered from the cache"),
    "nv_cache_num_misses_per_model": ("cache_miss_count", 1, "Requests that the cache had no answer for"),
    "nv_cache_hit_duration_per_model": ("cache_hit_ns", 1000, "Microseconds until the cache gave its answers"),
    "nv_cache_miss_duration_per_model": ("cache_miss_ns", 1000, "Microseconds of looking up in vain, and of keeping"),
}
FAILURES = {"busy": ("refused_busy",), "late": ("refused_late",), "cancelled": ("cancelled",)}


class Collector:
    """Reads the shared counters whenever it is asked."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Any]:
        """One family after the other."""
        supervisor = self._supervisor
        rows = [
            ([entry.names[0], entry.proven.version], supervisor.memory.sums(entry.slot)) for entry in supervisor.entries
        ]
        labels = ["model", "version"]
        for name, (field, divisor, text) in COUNTS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, sums in rows:
                counter.add_metric(values, sums[field] // divisor)
            yield counter
        failed = CounterMetricFamily(
            "nv_inference_request_failure", "Requests refused or failed", labels=[*labels, "reason"]
        )
        for values, sums in rows:
            known = {reason: sum(sums[field] for field in fields) for reason, fields in FAILURES.items()}
            refused = known["busy"] + known["late"]
            for reason, count in {**known, "other": max(0, sums["fail_count"] - refused)}.items():
                failed.add_metric([*values, reason], count)
        yield failed
        pending = GaugeMetricFamily("nv_inference_pending_request_count", "Samples that wait", labels=labels)
        for values, sums in rows:
            pending.add_metric(values, sums["pending"])
        yield pending
        yield self._histogram(rows, labels)

    @staticmethod
    def _histogram(rows: list[tuple[list[str], dict[str, int]]], labels: list[str]) -> Any:
        family = HistogramMetricFamily(
            "edgekit_request_duration_seconds", "Whole requests, for p99 alerts", labels=labels
        )
        for values, sums in rows:
            buckets, total = [], 0
            for place, bound_ms in enumerate(BOUNDS_MS):
                total += sums[f"below_{place}"]
                if place % 8 == 0:
                    buckets.append((f"{bound_ms / 1e3:.6g}", float(total)))
            total += sums[f"below_{len(BOUNDS_MS)}"]
            family.add_metric(values, [*buckets, ("+Inf", float(total))], sums["success_ns"] / 1e9)
        return family


def exposition(supervisor: Supervisor) -> bytes:
    """All metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(supervisor))
    return re.sub(rb"\b(nv_\w+)_total\b", rb"\1", generate_latest(registry))  # Triton's names have no such ending
