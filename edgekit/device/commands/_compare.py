"""`edgerun bench --compare`: times every way to run a bundle here, and caches the fastest."""

from __future__ import annotations

import argparse
import sys

from edgekit.device.admission import read
from edgekit.device.autotune import choice_cache, comparison
from edgekit.device.commands import _options
from edgekit.runner.commands import _shared


def run(options: argparse.Namespace) -> None:
    """A row for each interpreter and number of threads; the winner is what the next load takes."""
    found = read(options.bundle)
    device = options.device or "CPU"
    ways = comparison.list_candidates(
        found.manifest.target, options.threads, options.interpreter, device, all_of_them=True
    )
    if not options.json:
        print(f"trying {len(ways)} ways to run {options.bundle}", file=sys.stderr)
    from edgekit.device.measure import conditions, intervals

    with conditions.ConditionsRecorder(children=True) as watch:
        tried = comparison.time_candidates(options.bundle, found.identity, ways, device)
    spreads = [conditions.spread(way.p50_ms) for way in tried if len(way.p50_ms) >= intervals.MIN_ROUNDS]
    seen = conditions.to_record(watch.result(sorted(spreads)[len(spreads) // 2] if spreads else None))
    winner = comparison.select_best(tried)
    name = choice_cache.choice_key(found.identity, (options.interpreter, options.threads, device))
    kept = comparison.store_winner(options.bundle, name, winner, found, device, _shared.warn)
    if options.json:
        from edgekit.device.measure.bench import machine_facts

        rows = [{**vars(way), "chosen": way is winner} for way in tried]
        report = {
            "bundle": options.bundle,
            "ways": rows,
            "machine": machine_facts(),
            "compiled": bool(kept.blob),
            **seen,
        }
        _shared.print_json(report)
        return
    for line in table(tried, winner):
        print(line)
    _options.print_noise_reasons(seen["disturbed"])


def table(tried: list[comparison.Candidate], winner: comparison.Candidate) -> list[str]:
    """Aligned lines, in the order they were tried."""
    lines = [f"  {'interpreter':<16}{'version':<12}{'threads':>8}{'open_ms':>10}{'p50_ms':>12}"]
    for way in tried:
        mark = "*" if way is winner else " "
        if way.fault:
            lines.append(f"{mark} {way.interpreter:<16}{way.version:<12}{way.threads:>8}  {way.fault}")
            continue
        p50 = f"{way.typical_ms:>12.4f}" if way.p50_ms else f"{'':>12}"
        note = "  stopped after one measurement" if len(way.p50_ms) == 1 and len(tried) > 1 else ""
        lines.append(f"{mark} {way.interpreter:<16}{way.version:<12}{way.threads:>8}{way.open_ms:>10.1f}{p50}{note}")
    return [*lines, "* is used by the next load with these options on this machine"]
