"""`edgerun bench --minutes N`: a row a window while it runs, then what the rows prove."""

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
"""Of what is chosen here: faster, this process would do little but watch the clock."""
COLUMNS = ("time s", "calls", "per s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "max ms", "alone", "°C", "MHz", "MB")
WIDTHS = (7, 8, 9, 9, 9, 9, 9, 9, 9, 5, 6, 7)
FALSIFIERS = ("saturated", "throttled")
"""Findings that make a figure say something about the day, not about the device."""


def run(options: argparse.Namespace) -> None:
    """Print windows, findings, and whether they may be compared with others.

    KeyboardInterrupt after that, if it was cut short.
    """
    from edgekit.device.measure import drift, soak

    model = _shared.load(options)
    samples = cycle(model.golden()[0])
    call = lambda: model.predict(next(samples))  # noqa: E731
    capacity = soak.measure_capacity(call)
    rate = options.rate or min(HIGHEST_RATE_PER_S, _rounded(capacity / 2))
    planned = soak.plan_soak(rate, options.minutes * 60, options.window)
    known = _options.measurement_facts(options, model)
    if options.json:
        soak.run_soak(call, planned)
    else:
        _options.print_facts(known)
        _print_head(planned, capacity, options.rate is None)
        soak.run_soak(call, planned, on_window=_print_row)
    found = drift.soak_findings(planned.windows, rate) if planned.windows else {}
    reasons = known["why"] + [found[key].words for key in FALSIFIERS if key in found and found[key].found]
    if options.json:
        known.update(comparable=not reasons, why=reasons)
        _shared.print_json({**known, "capacity_per_s": capacity, **_soaked(planned, found)})
    else:
        _print_findings(planned, found, reasons)
    if planned.cut_short:
        raise KeyboardInterrupt


def _soaked(done: Soak, found: dict[str, SoakFinding]) -> dict[str, Any]:
    return {
        "rate_per_s": done.rate_per_s,
        "minutes": done.seconds / 60,
        "window_s": done.window_s,
        "cut_short": done.cut_short,
        "latency_from": "intended start",
        "windows": [each.to_dict() for each in done.windows],
        "findings": {name: each.to_dict() for name, each in found.items()},
    }


def _print_head(planned: Soak, capacity: float, chosen: bool) -> None:
    trial = f"one after another it answers {_rounded(capacity):,g} per s"
    why = f"{trial}; half of that, {HIGHEST_RATE_PER_S:,g} at most" if chosen else trial
    print(f"{planned.rate_per_s:,g} calls per s for {planned.seconds / 60:g} min ({why})")
    print("latency runs from when a call was due; “alone” is the p50 of the call by itself")
    print("".join(f"{word:>{width}}" for word, width in zip(COLUMNS, WIDTHS)), flush=True)


def _print_row(window: SoakWindow) -> None:
    times = (window.p50_ms, window.p90_ms, window.p95_ms, window.p99_ms, window.max_ms, window.service_p50_ms)
    resident_mb = None if window.resident_bytes is None else window.resident_bytes / 1e6
    words = (
        f"{window.start_s + window.seconds:,.0f}" if window.seconds >= 1 else f"{window.start_s + window.seconds:.1f}",
        f"{window.calls:,}",
        f"{window.rate_per_s:,.1f}",
        *(_ms(value) for value in times),
        *("–" if value is None else f"{value:,.0f}" for value in (window.temperature_c, window.frequency_mhz)),
        "–" if resident_mb is None else f"{resident_mb:,.1f}",
    )
    flag = "  throttled" if window.throttled else ""
    print("".join(f"{word:>{width}}" for word, width in zip(words, WIDTHS)) + flag, flush=True)


def _print_findings(done: Soak, found: dict[str, SoakFinding], reasons: list[str]) -> None:
    if done.cut_short:
        print(f"cut short after {len(done.windows)} of {round(done.seconds / done.window_s)} windows")
    names = {"saturated": "load", "throttled": "throttling", "drifted": "latency", "grew": "memory"}
    for key, each in found.items():
        _print_wrapped(names[key], each.words)
    if reasons:
        _print_wrapped("comparable", f"no: {'; '.join(reasons)}")


def _print_wrapped(name: str, words: str) -> None:
    print(textwrap.fill(words, 100, initial_indent=f"{name:<12}", subsequent_indent=" " * 12))


def _ms(value: float) -> str:
    """Four digits that count, in milliseconds."""
    return f"{value:.4f}" if value < 10 else f"{value:.3f}" if value < 100 else f"{value:,.1f}"


def _rounded(value: float) -> float:
    """Two digits that count: a trial of half a second is no more precise."""
    return float(f"{value:.2g}")
