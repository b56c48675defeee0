"""`edgerun bench --minutes N`: print a row for each window while the measurement runs, and the findings at the end."""

from __future__ import annotations

import argparse
import textwrap
from itertools import cycle
from typing import TYPE_CHECKING, Any

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.device.measure.drift import SoakFinding
    from edgekit.device.measure.soak import Soak, SoakWindow

HIGHEST_RATE_PER_S = 1000.0
"""Limit for the rate that is used without `--rate`: at a higher rate, this process would spend much of its time on the
busy waiting that precedes each call."""
COLUMNS = ("time s", "calls", "per s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "max ms", "alone", "°C", "MHz", "MB")
WIDTHS = (7, 8, 9, 9, 9, 9, 9, 9, 9, 5, 6, 7)
INVALIDATING = ("saturated", "throttled")
"""Findings after which a result says more about the circumstances than about the device, and is not comparable."""


def run(options: argparse.Namespace) -> None:
    """Print the windows, the findings, and whether the result may be compared with others.

    If Ctrl-C cut the measurement short, KeyboardInterrupt is raised after everything has been printed.
    """
    from edgekit.device.measure import drift, soak

    model = _shared.load(options)
    samples = cycle(model.golden()[0])
    call = lambda: model.predict(next(samples))  # noqa: E731
    capacity = soak.measure_capacity(call)
    rate = options.rate or min(HIGHEST_RATE_PER_S, _rounded(capacity / 2))
    planned = soak.plan_soak(rate, options.minutes * 60, options.window)
    facts = _options.measurement_facts(options, model)
    if options.json:
        soak.run_soak(call, planned)
    else:
        _options.print_facts(facts)
        _print_head(planned, capacity, options.rate is None)
        soak.run_soak(call, planned, on_window=_print_row)
    findings = drift.soak_findings(planned.windows, rate) if planned.windows else {}
    reasons = facts["why"] + [
        findings[key].words for key in INVALIDATING if key in findings and findings[key].is_present
    ]
    if options.json:
        facts.update(comparable=not reasons, why=reasons)
        _shared.print_json({**facts, "capacity_per_s": capacity, **_soak_record(planned, findings)})
    else:
        _print_findings(planned, findings, reasons)
    if planned.cut_short:
        raise KeyboardInterrupt


def _soak_record(soak: Soak, findings: dict[str, SoakFinding]) -> dict[str, Any]:
    return {
        "rate_per_s": soak.rate_per_s,
        "minutes": soak.seconds / 60,
        "window_s": soak.window_s,
        "cut_short": soak.cut_short,
        "latency_from": "intended start",
        "windows": [each.to_dict() for each in soak.windows],
        "findings": {name: each.to_dict() for name, each in findings.items()},
    }


def _print_head(planned: Soak, capacity: float, chosen: bool) -> None:
    closed_loop = f"called without pauses, the model answers {_rounded(capacity):,g} per s"
    reason = f"{closed_loop}; half of that is used, but {HIGHEST_RATE_PER_S:,g} at most" if chosen else closed_loop
    print(f"{planned.rate_per_s:,g} calls per s for {planned.seconds / 60:g} min ({reason})")
    print("latency is counted from the time when a call was due; “alone” is the p50 of the call by itself")
    print("".join(f"{word:>{width}}" for word, width in zip(COLUMNS, WIDTHS)), flush=True)


def _print_row(window: SoakWindow) -> None:
    times = (window.p50_ms, window.p90_ms, window.p95_ms, window.p99_ms, window.max_ms, window.service_p50_ms)
    resident_mb = None if window.resident_bytes is None else window.resident_bytes / 1e6
    cells = (
        f"{window.start_s + window.seconds:,.0f}" if window.seconds >= 1 else f"{window.start_s + window.seconds:.1f}",
        f"{window.calls:,}",
        f"{window.rate_per_s:,.1f}",
        *(_ms(value) for value in times),
        *("–" if value is None else f"{value:,.0f}" for value in (window.temperature_c, window.frequency_mhz)),
        "–" if resident_mb is None else f"{resident_mb:,.1f}",
    )
    flag = "  throttled" if window.throttled else ""
    print("".join(f"{word:>{width}}" for word, width in zip(cells, WIDTHS)) + flag, flush=True)


def _print_findings(soak: Soak, findings: dict[str, SoakFinding], reasons: list[str]) -> None:
    if soak.cut_short:
        print(f"cut short after {len(soak.windows)} of {round(soak.seconds / soak.window_s)} windows")
    names = {"saturated": "load", "throttled": "throttling", "drifted": "latency", "grew": "memory"}
    for key, each in findings.items():
        _print_wrapped(names[key], each.words)
    if reasons:
        _print_wrapped("comparable", f"no: {'; '.join(reasons)}")


def _print_wrapped(name: str, words: str) -> None:
    print(textwrap.fill(words, 100, initial_indent=f"{name:<12}", subsequent_indent=" " * 12))


def _ms(value: float) -> str:
    """Format milliseconds with about four significant digits."""
    return f"{value:.4f}" if value < 10 else f"{value:.3f}" if value < 100 else f"{value:,.1f}"


def _rounded(value: float) -> float:
    """Round to two significant digits, because a test of half a second is no more precise than that."""
    return float(f"{value:.2g}")
