"""Metrics for Prometheus. A metric that Triton also has keeps Triton's name and unit (µs); all others use seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.histogram import exposed_buckets
from edgekit.device.monitor.machine import MachineMetrics
from edgekit.serve.batcher import SIZES
from edgekit.serve.counters import FIELDS, NO_MODEL, PARTS
from edgekit.serve.errors import Reason

if TYPE_CHECKING:
    from edgekit.serve.supervisor import Supervisor

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
LABELS = ("model", "version")
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
    "nv_cache_miss_duration_per_model": (
        "cache_miss_ns",
        1000,
        "Microseconds of failed look-ups, and of storing answers",
    ),
}
TRITON_REASONS = ("busy", "late", "cancelled")
"""Reasons that appear by name in Triton's counter of failures. All others are counted as `other` there."""
MACHINE = MachineMetrics()
CACHE = {"edgekit_cache_bytes": "Bytes that the cache holds", "edgekit_cache_entries": "Answers that the cache holds"}


class Collector:
    """Collects the metrics from the shared counters whenever Prometheus scrapes them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._memory = supervisor.memory

    def collect(self) -> Iterator[Any]:
        """Yield all metric families."""
        slots = {(entry.names[0], entry.bundle.version): entry.slot for entry in self._supervisor.entries}
        sums = {names: self._memory.sums(slot) for names, slot in slots.items()}
        yield from _triton(sums)
        yield self._request_durations(slots, sums)
        yield self._part_durations(slots, sums)
        yield _batches(sums)
        yield _refusals({**sums, ("", ""): self._memory.sums(NO_MODEL)})
        yield from self._cache()
        yield from _processes(self._supervisor.processes())
        verdicts = self._supervisor.verdicts
        yield from _runner_families([*MACHINE.board(), *(verdicts.families() if verdicts is not None else ())])

    def _request_durations(self, slots: dict[tuple[str, str], int], sums: dict[tuple[str, str], dict[str, int]]) -> Any:
        name, text = "edgekit_request_duration_seconds", "Duration of the answered requests, from arrival to answer"
        family = HistogramMetricFamily(name, text, labels=LABELS)
        for names, slot in slots.items():
            _add(family, names, self._memory.histogram(slot, "success"), sums[names]["success_ns"])
        return family

    def _part_durations(self, slots: dict[tuple[str, str], int], sums: dict[tuple[str, str], dict[str, int]]) -> Any:
        name, text = "edgekit_part_duration_seconds", "Duration of each part of the answered requests"
        family = HistogramMetricFamily(name, text, labels=(*LABELS, "part"))
        for names, slot in slots.items():
            for part, kind in PARTS.items():
                _add(family, (*names, part), self._memory.histogram(slot, kind), sums[names][f"{kind}_ns"])
        return family

    def _cache(self) -> Iterator[Any]:
        if not self._supervisor.settings.cache_bytes:
            return
        for name, text in CACHE.items():
            family = GaugeMetricFamily(name, text, labels=("process",))
            for worker in range(self._memory.workers):
                field = FIELDS[name.removeprefix("edgekit_")]
                family.add_metric((f"worker{worker}",), self._memory.row(worker, NO_MODEL)[field])
            yield family


def _triton(sums: dict[tuple[str, str], dict[str, int]]) -> Iterator[Any]:
    for name, (field, divisor, text) in COUNTS.items():
        counter = CounterMetricFamily(name, text, labels=LABELS)
        for names, counts in sums.items():
            counter.add_metric(names, counts[field] // divisor)
        yield counter
    failed = CounterMetricFamily(
        "nv_inference_request_failure", "Requests refused or failed", labels=(*LABELS, "reason")
    )
    pending = GaugeMetricFamily("nv_inference_pending_request_count", "Samples that are waiting", labels=LABELS)
    for names, counts in sums.items():
        by_reason = {reason: counts[f"refused_{reason}"] for reason in TRITON_REASONS}
        other = counts["fail_count"] - by_reason["busy"] - by_reason["late"]
        for reason, count in {**by_reason, "other": max(0, other)}.items():
            failed.add_metric((*names, reason), count)
        pending.add_metric(names, counts["pending"])
    yield failed
    yield pending


def _add(family: Any, labels: Sequence[str], counts: Iterable[int], ns: int) -> None:
    family.add_metric(labels, [(bound, float(count)) for bound, count in exposed_buckets(counts)], ns / 1e9)


def _batches(sums: dict[tuple[str, str], dict[str, int]]) -> Any:
    family = HistogramMetricFamily("edgekit_batch_size", "Samples in one call of the interpreter", labels=LABELS)
    for names, counts in sums.items():
        calls, samples, cumulative = 0, 0, []
        for size in SIZES:
            calls += counts[f"batch_{size}_count"]
            samples += size * counts[f"batch_{size}_count"]
            cumulative.append((str(size), float(calls)))
        family.add_metric(names, [*cumulative, ("+Inf", float(calls))], float(samples))
    return family


def _refusals(sums: dict[tuple[str, str], dict[str, int]]) -> Any:
    text = "Requests that got no answer; the model is empty if the request was refused before one was known"
    family = CounterMetricFamily("edgekit_refused", text, labels=(*LABELS, "reason"))
    for names, counts in sums.items():
        for reason in Reason:
            family.add_metric((*names, reason), counts[f"refused_{reason}"])
    return family


def _processes(pids: dict[str, int]) -> Iterator[Any]:
    cpu = CounterMetricFamily("edgekit_process_cpu_seconds", "CPU of a process, user and system", labels=("process",))
    resident = GaugeMetricFamily("edgekit_process_resident_bytes", "Resident memory of a process", labels=("process",))
    for name, pid in pids.items():
        usage = _usage(pid)
        if usage is not None:
            cpu.add_metric((name,), usage[0])
            resident.add_metric((name,), usage[1])
    yield cpu
    yield resident


def _usage(pid: int) -> tuple[float, int] | None:
    """Return a process's CPU time in s and its resident bytes, from /proc; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()  # the name before it may contain spaces and brackets
        user, system, resident = int(fields[11]), int(fields[12]), int(fields[21])
    except (OSError, ValueError, IndexError):
        return None
    return (user + system) / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE")


def _runner_families(families: Iterable[Family]) -> Iterable[Metric]:
    """Convert metric families of the runner to those of prometheus_client, and merge families of the same name."""
    metrics: dict[str, Metric] = {}
    for family in families:
        metric = metrics.setdefault(family.name, Metric(family.name, family.help, family.kind))
        for suffix, labels, value in family.samples:
            metric.add_sample(f"{family.name}{suffix}", labels, float(value))
    return metrics.values()


def exposition(supervisor: Supervisor) -> bytes:
    """Return all metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(supervisor))
    return re.sub(rb"\b(nv_\w+)_total\b", rb"\1", generate_latest(registry))  # Triton's names do not end in _total
