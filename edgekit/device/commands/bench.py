"""`edgerun bench`: measure how fast a model is on this device, whether it stays so, and which bundle is fastest."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "time the model on this device"
ROUNDS = 10
CALLS = 1000
WARMUP = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="+", help="a file that ends in .edge.zip; several are timed in turns"
    )
    _shared.add_json_argument(parser)
    parser.add_argument("--calls", metavar="N", type=_shared.positive, help=f"timed calls (default: {CALLS})")
    parser.add_argument(
        "--warmup", metavar="N", type=_shared.non_negative, help=f"untimed calls in a round (default: {WARMUP})"
    )
    parser.add_argument("--compare", action="store_true", help="time every interpreter with every number of threads")
    several = parser.add_argument_group("several bundles in turns, or one bundle with --rounds")
    several.add_argument(
        "--rounds", metavar="N", type=_shared.positive, help="rounds; each times every bundle once (default: 30)"
    )
    several.add_argument(
        "--samples", action="store_true", help="with --json: print the time of every call in nanoseconds"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="time the bundle against itself, and write a board report as JSON: FILE.json"
    )
    soak = parser.add_argument_group("over time, at a fixed rate")
    soak.add_argument(
        "--minutes", metavar="N", type=_above_zero, help="measure for this many minutes, window by window"
    )
    soak.add_argument(
        "--rate", metavar="R", type=_above_zero, help="calls per second (default: half of what a short test reaches)"
    )
    soak.add_argument(
        "--window", metavar="S", type=_above_zero, help="length of a window, seconds (default: a twentieth of the time)"
    )
    _shared.add_interpreter_arguments(parser)
    parser.set_defaults(misuse=parser.error)


def run(options: argparse.Namespace) -> None:
    """Print latencies of the model alone and of a complete prediction, or run the measurement that the options name."""
    if options.report and len(options.bundle) > 1:
        options.misuse("--report is about one bundle; leave out the others")
    if len(options.bundle) > 1 or options.rounds or options.report:
        if options.compare or options.minutes or options.rate or options.window:
            options.misuse(
                "--report and several bundles are timed in rounds; leave out --compare, --minutes, --rate and --window"
            )
        from edgekit.device.commands import _interleaved

        _interleaved.run(options)
        return
    if options.samples:
        options.misuse(
            "--samples applies only to bundles that are timed in rounds; name several bundles, or give --rounds"
        )
    options.bundle = options.bundle[0]
    if options.compare and options.minutes:
        options.misuse("--compare and --minutes are two different measurements; use one of them")
    if options.compare and (options.calls or options.warmup is not None or options.no_trial):
        options.misuse("--compare times rounds of its own; leave out --calls, --warmup and --no-trial")
    if options.minutes and (options.calls or options.warmup is not None):
        options.misuse("--minutes measures for a fixed time; leave out --calls and --warmup")
    if not options.minutes and (options.rate or options.window):
        options.misuse("--rate and --window apply only with --minutes N")
    if options.compare:
        from edgekit.device.commands import _compare

        _compare.run(options)
    elif options.minutes:
        from edgekit.device.commands import _soak

        _soak.run(options)
    else:
        _calls(options)


def _calls(options: argparse.Namespace) -> None:
    from edgekit.device.measure import bench, conditions

    model = _shared.load(options)
    raw = model.golden()[0][0]
    x = model.prepare(raw)
    call_count, warmup = options.calls or CALLS, WARMUP if options.warmup is None else options.warmup
    rounds = min(ROUNDS, call_count)
    calls = {"execute": lambda: model.execute(x), "predict": lambda: model.predict(raw)}
    with conditions.ConditionsRecorder() as recorder:
        samples = bench.time_interleaved(calls, rounds, -(-call_count // rounds), warmup, on_round=recorder.sample)
    figures = {name: bench.latency_summary(values) for name, values in samples.items()}
    facts = _options.measurement_facts(options, model)
    record = conditions.to_record(recorder.result(conditions.noise(samples["execute"], rounds)))
    reasons = facts["why"] + record["disturbed"]
    facts.update(record, comparable=not reasons, why=reasons)
    if options.json:
        _shared.print_json({**facts, **figures})
        return
    _options.print_facts(facts)
    columns = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "throughput_per_s")
    print(f"{'':<8}" + "".join(f"{name:>18}" for name in columns))
    for name, row in figures.items():
        print(f"{name:<8}" + "".join(f"{row[column]:>18,.{4 if column.endswith('_ms') else 1}f}" for column in columns))
    _options.print_noise_reasons(record["disturbed"])


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}; use a number above 0")
    return value
