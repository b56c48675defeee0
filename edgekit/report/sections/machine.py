"""Show the machine of the measurement, what else ran on it, and the versions of the libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.result import Result
from edgekit.device.measure.conditions import (
    MAX_CLOCK_CHANGE,
    MAX_NOISE,
    MAX_OTHERS_SHARE,
    MAX_PACE_CHANGE,
    MAX_PREEMPTED_PER_S,
    MAX_STEAL_SHARE,
)
from edgekit.report.tables import Grid, Line, grid

NOT_NOISY = "the measurement was not noisy"
CONDITION_NAMES = {
    "host": "host",
    "cpu": "processor",
    "cores": "cores the process could use",
    "machine": "architecture",
    "system": "system",
    "python": "Python",
    "numpy": "numpy",
    "threads": "threads of every interpreter",
    "protocol": "protocol",
}
NOISE_SOURCES: tuple[tuple[str, str, str, float | None], ...] = (
    ("seconds", "duration, seconds", "{:,.0f}", None),
    ("others_share", "CPU time of other processes", "{:.1%}", MAX_OTHERS_SHARE),
    ("steal_share", "CPU time withheld by the hypervisor", "{:.1%}", MAX_STEAL_SHARE),
    ("preempted_per_s", "preemptions by other processes, per second", "{:.0f}", MAX_PREEMPTED_PER_S),
    ("quota_stops", "stops by the CPU quota of its cgroup", "{:.0f}", 0),
    ("load_before", "load average of one minute, before", "{:.2f}", None),
    ("load_after", "load average of one minute, after", "{:.2f}", None),
    ("clock_mhz", "clock of the fastest core, MHz", "{:,.0f}", None),
    ("clock_change", "change of that clock", "{:.1%}", MAX_CLOCK_CHANGE),
    ("throttled", "throttled by heat or low voltage", "{}", None),
    ("temperature_before_c", "temperature before, °C", "{:.0f}", None),
    ("temperature_after_c", "temperature after, °C", "{:.0f}", None),
    ("pace_ms", "time of a fixed piece of work, ms", "{:.3g}", None),
    ("pace_change", "change of that time", "{:.1%}", MAX_PACE_CHANGE),
    ("noise", "spread between openings of a variant, median of all variants", "{:.1%}", MAX_NOISE),
)
"""Entries of `conditions.seen`: key, description, format, and the limit above which a measurement counts as noisy."""


def disturbance_text(artifact: Artifact) -> str:
    """Say how noisy the measurement of the profile or benchmark stage was.

    The text has a line for each comparison that noise left unsettled.
    """
    conditions = artifact.metrics["conditions"]
    noise = conditions["seen"]["noise"]
    spread = "" if noise is None else f"; opening the same variant again changed its p50 by {noise:.1%} in the median"
    observed = f"noisy measurement: {'; '.join(conditions['disturbed'])}" if conditions["disturbed"] else NOT_NOISY
    observed = f"this machine: {observed}" if "devices" in artifact.metrics else observed
    return "\n".join([f"{observed}{spread}", *(f"not settled: {line}" for line in conditions.get("stayed_open", []))])


def facts(result: Result) -> list[tuple[str, str]]:
    """Return the conditions of the measurement and their names. A condition without a name is shown under its key."""
    conditions = result["conditions"]
    rows = [
        (CONDITION_NAMES.get(name, name.replace("_", " ")), str(value))
        for name, value in sorted(conditions.items(), key=lambda item: [*CONDITION_NAMES, item[0]].index(item[0]))
        if isinstance(value, (str, int, float))
    ]
    interpreters = ", ".join(f"{name} {version}" for name, version in sorted(conditions["interpreters"].items()))
    return [
        *rows,
        ("interpreters", interpreters),
        ("noise", "; ".join(conditions["disturbed"]) or "none was seen"),
        ("stayed open", "; ".join(conditions["stayed_open"]) or "no comparison"),
    ]


def noise_grid(result: Result) -> Grid:
    """Show what was observed during the measurement, as far as the machine reports it, and the limits for noise."""
    observed: Mapping[str, Any] = result["conditions"]["seen"]
    lines = [
        Line(
            (words, _format_value(observed[key], form), "" if limit is None else form.format(limit)),
            "out" if _is_noisy(observed[key], limit) else "",
        )
        for key, words, form, limit in NOISE_SOURCES
        if observed[key] is not None
    ]
    columns = ("during the measurement", "observed", "noisy above")
    caption = "Other activity, from before the first call until after the last; shares are of the time of all cores"
    return Grid(caption, columns, lines, frozenset(columns[1:]), frozenset(columns[:1]))


def versions_grid(result: Result, chain: dict[str, Artifact]) -> Grid:
    """Show every library that an artifact depends on, with its version and stages."""
    stages_by_library: dict[tuple[str, str], list[str]] = {("edgekit", result["edgekit"]): []}
    for stage, artifact in chain.items():
        for library, version in artifact.versions.items():
            stages_by_library.setdefault((library, str(version)), []).append(stage)
    rows = [
        (*key, ", ".join(used) or "all")
        for key, used in sorted(stages_by_library.items(), key=lambda item: item[0][0].lower())
    ]
    return grid("Libraries that shaped the artifacts", ("library", "version", "stages"), rows, words="stages")


def _format_value(value: Any, form: str) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else form.format(value)


def _is_noisy(value: Any, limit: float | None) -> bool:
    return value is True or (limit is not None and value > limit)
