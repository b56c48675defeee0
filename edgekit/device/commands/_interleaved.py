"""`edgerun bench A B …`: time several bundles in turns, each opened many times, and give intervals for their ratios."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from edgekit.device.commands import _options
from edgekit.device.measure import bench, conditions, intervals
from edgekit.runner.commands import _shared
from edgekit.runner.errors import SelftestError
from edgekit.runner.model import Model, open_model

ROUNDS, CALLS, WARMUP = 30, 600, 5
CONFIDENCE = 0.99


def run(options: argparse.Namespace) -> None:
    """Print a row for each bundle: its p50, and the ratio of that p50 to the one of the fastest bundle.

    Raises SelftestError if a bundle fails its self-test; no bundle is timed then.
    """
    paths = 2 * options.bundle if options.report else options.bundle
    models = [_load_validated(options, path) for path in paths]
    rounds = max(options.rounds or ROUNDS, intervals.MIN_ROUNDS)
    calls, warmup = -(-(options.calls or CALLS) // rounds), WARMUP if options.warmup is None else options.warmup
    openers = {str(index): _opener(model) for index, model in enumerate(models)}
    with conditions.ConditionsRecorder() as recorder:
        timings = bench.timed_openings(openers, rounds, rounds, calls, warmup, on_round=recorder.sample)
        samples_ms, openings = next(timings)
    spreads = sorted(conditions.noise(each, openings) or 0.0 for each in samples_ms.values())
    record = conditions.to_record(recorder.result(spreads[len(spreads) // 2]))
    rows = _rows(paths, models, samples_ms, openings)
    if options.samples or options.report:
        for row, values_ms in zip(rows, samples_ms.values()):
            row["samples_ns"] = [round(1e6 * each) for each in values_ms.tolist()]
    facts = _options.measurement_facts(argparse.Namespace(bundle=paths[0], device=options.device), models[0])
    for name in ("bundle", "sha256", "interpreter", "version", "threads"):
        del facts[name]  # each row has its own
    reasons = facts["why"] + record["disturbed"]
    facts.update(record, comparable=not reasons, why=reasons, confidence=CONFIDENCE, rounds=rounds)
    facts.update(openings=openings, calls_per_round=calls, warmup_per_round=warmup)
    if options.report:
        from edgekit.device.measure import board_report

        board_report.write(options.report, paths[0], models[0], facts, rows)
    if options.json:
        _shared.print_json({**facts, "bundles": rows})
        return
    machine = facts["machine"]
    print(f"on {machine['host']} ({machine['cpu']}), {facts['architecture']}, Python {machine['python']}")
    for line in _table(rows):
        print(line)
    print(
        f"{rounds} rounds in rotating order, each file opened {openings} times; {100 * CONFIDENCE:g} "
        f"% confidence intervals"
    )
    _options.print_noise_reasons(record["disturbed"])


def _load_validated(options: argparse.Namespace, path: str) -> Model:
    model = _shared.load(argparse.Namespace(**{**vars(options), "bundle": path}))
    report = model.selftest()
    if not report.ok:
        raise SelftestError(
            f"{path}: does not give the golden outputs on this device, so it is not timed; run `edgerun "
            f"selftest {path}` for details"
        )
    return model


def _opener(model: Model) -> Callable[[], Callable[[], object]]:
    """Return a function that opens the bundle again with the same interpreter, threads and device.

    Each time that it is called, it opens a new model, and returns a second function, which runs the new model on the
    first golden sample.
    """
    settings = (model.threads, model.backend.name, model.device)
    x = model.prepare(model.golden()[0][0])

    def open_again() -> Callable[[], object]:
        execute = open_model(model.bundle, *settings).execute
        return lambda: execute(x)

    return open_again


def _rows(
    paths: list[str], models: list[Model], samples_ms: dict[str, np.ndarray], openings: int
) -> list[dict[str, Any]]:
    standings = intervals.relative_latencies(samples_ms, openings)
    fastest = samples_ms[min(standings, key=lambda name: standings[name])]
    rows = []
    for path, model, values_ms in zip(paths, models, samples_ms.values()):
        median = intervals.p50_interval(values_ms, openings, CONFIDENCE)
        ratio = intervals.ratio_interval(values_ms, fastest, openings, CONFIDENCE)
        rows.append(
            {
                "bundle": path,
                "sha256": model.bundle.sha256,
                "interpreter": model.backend.name,
                "version": model.backend.version,
                "threads": model.threads,
                **bench.latency_summary(values_ms),
                "low_ms": median.low_ms,
                "high_ms": median.high_ms,
                "ratio": ratio.ratio,
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
            }
        )
    return rows


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{'p50_ms':>10}{'interval':>20}{'times the fastest':>24}  bundle"]
    for row in sorted(rows, key=lambda row: (row["ratio"], row["bundle"])):
        interval = f"{row['low_ms']:.4f}–{row['high_ms']:.4f}"
        ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
        lines.append(f"{row['p50_ms']:>10.4f}{interval:>20}{ratio:>24}  {row['bundle']}")
    return lines
