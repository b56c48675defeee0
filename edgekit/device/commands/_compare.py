"""`edgerun bench --compare`: time every interpreter and number of threads on this device, and cache the fastest."""

from __future__ import annotations

import argparse
import sys

from edgekit.device.admission import read
from edgekit.device.autotune import choice_cache, comparison
from edgekit.device.commands import _options
from edgekit.runner.commands import _shared


def run(options: argparse.Namespace) -> None:
    """Print a row for each interpreter and number of threads. The next load uses the winner."""
    bundle = read(options.bundle)
    device = options.device or "CPU"
    candidates = comparison.list_candidates(
        bundle.manifest.target, options.threads, options.interpreter, device, all_of_them=True
    )
    if not options.json:
        print(f"timing {len(candidates)} combinations of interpreter and threads for {options.bundle}", file=sys.stderr)
    from edgekit.device.measure import conditions, intervals

    with conditions.ConditionsRecorder(children=True) as recorder:
        timed = comparison.time_candidates(options.bundle, bundle.identity, candidates, device)
    spreads = [
        conditions.spread(candidate.p50_ms) for candidate in timed if len(candidate.p50_ms) >= intervals.MIN_ROUNDS
    ]
    record = conditions.to_record(recorder.result(sorted(spreads)[len(spreads) // 2] if spreads else None))
    winner = comparison.select_best(timed)
    key = choice_cache.choice_key(bundle.identity, (options.interpreter, options.threads, device))
    choice = comparison.store_winner(options.bundle, key, winner, bundle, device, _shared.warn)
    if options.json:
        from edgekit.device.measure.bench import machine_facts

        rows = [{**vars(candidate), "chosen": candidate is winner} for candidate in timed]
        report = {
            "bundle": options.bundle,
            "ways": rows,
            "machine": machine_facts(),
            "compiled": bool(choice.blob),
            **record,
        }
        _shared.print_json(report)
        return
    for line in table(timed, winner):
        print(line)
    _options.print_noise_reasons(record["disturbed"])


def table(timed: list[comparison.Candidate], winner: comparison.Candidate) -> list[str]:
    """Return the results as aligned lines, in the order in which the candidates were timed."""
    lines = [f"  {'interpreter':<16}{'version':<12}{'threads':>8}{'open_ms':>10}{'p50_ms':>12}"]
    for candidate in timed:
        mark = "*" if candidate is winner else " "
        name = f"{mark} {candidate.interpreter:<16}{candidate.version:<12}{candidate.threads:>8}"
        if candidate.fault:
            lines.append(f"{name}  {candidate.fault}")
            continue
        p50 = f"{candidate.typical_ms:>12.4f}" if candidate.p50_ms else f"{'':>12}"
        note = "  stopped after one measurement" if len(candidate.p50_ms) == 1 and len(timed) > 1 else ""
        lines.append(f"{name}{candidate.open_ms:>10.1f}{p50}{note}")
    return [*lines, "* is used by the next load with these options on this machine"]
