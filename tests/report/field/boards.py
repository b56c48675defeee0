"""Board reports for tests: one of the real runner, and the same as it would be from a quiet board."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.measure import bench, conditions, intervals
from edgekit.device.measure.board_report import digest
from edgekit.runner.cli import main

Change = Callable[[dict[str, Any]], object]
ROUNDS, CALLS = 10, 50


def measured(bundle: Path, out: Path, *words: str) -> dict[str, Any]:
    """What `edgerun bench --report` writes on this machine, however busy it is."""
    options = ["--report", str(out), "--no-trial", "--rounds", str(ROUNDS), "--calls", str(CALLS), *words]
    assert main(["bench", str(bundle), *options]) == 0
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def signed(content: dict[str, Any]) -> dict[str, Any]:
    """With the digest of what it holds."""
    return {**content, "digest": digest(content)}


def quiet(content: dict[str, Any], ms: float = 4.0, seed: int = 0, slower: float = 1.0) -> dict[str, Any]:
    """The report with steady calls of `ms`; the second measurement takes `slower` times as long."""
    result = copy.deepcopy(content)
    generator, openings = np.random.default_rng(seed), result["openings"]
    for row, factor in zip(result["rows"], (1.0, slower), strict=True):
        values_ns = factor * 1e6 * ms * (1 + 0.01 * generator.random(len(row["samples_ns"])))
        row["samples_ns"] = [round(each) for each in values_ns.tolist()]
    samples_ms = {str(place): np.asarray(row["samples_ns"]) / 1e6 for place, row in enumerate(result["rows"])}
    standings = intervals.relative_latencies(samples_ms, openings)
    fastest = samples_ms[min(standings, key=lambda name: standings[name])]
    for row, values_ms in zip(result["rows"], samples_ms.values(), strict=True):
        middle = intervals.p50_interval(values_ms, openings, result["confidence"])
        ratio = intervals.ratio_interval(values_ms, fastest, openings, result["confidence"])
        row.update(bench.latency_summary(values_ms), low_ms=middle.low_ms, high_ms=middle.high_ms)
        row.update(ratio=ratio.ratio, ratio_low=ratio.low, ratio_high=ratio.high)
    result["seen"].update(
        seconds=10.0, others_share=0.01, steal_share=0.0, preempted_per_s=1.0, quota_stops=0, pace_change=0.01,
        clock_change=0.0, throttled=False, temperature_after_c=51.0,
        noise=max(conditions.noise(each, openings) or 0.0 for each in samples_ms.values()),
    )  # fmt: skip
    result["machine"]["board"] = "Raspberry Pi 5 Model B Rev 1.0"
    return signed({**result, "disturbed": []})


def forged(content: dict[str, Any], change: Change, sign: bool = True) -> dict[str, Any]:
    """A copy that was changed, with a digest that fits again unless `sign` is false."""
    result = copy.deepcopy(content)
    change(result)
    return signed(result) if sign else result
