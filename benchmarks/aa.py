"""A/A: is a file found different from itself, and is one found that takes 3 % longer? As the benchmark stage compares.

    python -m benchmarks.aa [--repetitions 100] [--network resnet8] [--precision int8] [--target tflite]

Each repetition is a whole comparison with the stage's default numbers: both sides opened anew many times, rounds
added while the interval is too wide, a difference where it excludes 1. The two sides are the same file; for a
slow-down, one of them waits after each call, for a share of its own p50 that is calibrated at each opening. The kinds
of repetition take turns. Ends with exit code 1 where the file differs from itself in more than 5 % of them, or where
3 % are surely found in fewer than 95 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks import harness
from benchmarks.networks import make
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine_facts, time_interleaved, timed_openings
from edgekit.device.measure.execution import timed_call
from edgekit.device.measure.intervals import RatioInterval
from edgekit.report.formatting import faster
from edgekit.runner import bundle
from edgekit.runner.backends import open_backend
from edgekit.runner.native_stderr import quiet_native
from edgekit.stages.benchmark import BenchmarkConfig

NO_DIFFERENCE = "no difference"
ALLOWED = 0.05
TO_FIND, FOUND = 0.03, 0.95
CALIBRATING_CALLS = 40

Call = Callable[[], object]
Opener = Callable[[], Call]


def main() -> None:
    """A row for each slow-down, and what else went on."""
    parser = harness.parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--network", default="resnet8")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--target", default="tflite")
    parser.add_argument("--slowdowns", default="0,1.5,3", help="percent; 0 is the file against itself")
    options = parser.parse_args()
    opener = of_network(options.network, options.precision, options.target)
    config = BenchmarkConfig()
    slowdowns = [float(word) / 100 for word in options.slowdowns.split(",")]
    found: dict[float, list[tuple[RatioInterval, int]]] = {share: [] for share in slowdowns}
    p50s_ms: list[float] = []
    noises: list[float] = []
    with conditions.ConditionsRecorder() as watch:
        for _ in range(options.repetitions):
            for share in slowdowns:
                ratio, openings, samples_ms = compared(opener, slowed(opener, share) if share else opener, config)
                found[share].append((ratio, openings))
                p50s_ms.append(float(np.median(samples_ms)))
                noises.append(conditions.noise(samples_ms, openings) or 0.0)
                watch.sample()
    known = machine_facts()
    what = f"{options.network}-{options.precision}-{options.target}"
    print(f"{what}, p50 {1000 * median(p50s_ms):.1f} µs, on {known['cpu']}, {known['cores']} cores, one thread")
    print(f"{'takes longer by':<16}{'said to differ':>15}   {'95 % interval':<18}{'median ratio':>13}{'openings':>10}")
    for share, rows in found.items():
        print(row(share, rows))
    seen = watch.result(median(noises))
    print(
        f"noise {seen.noise:.1%}; disturbed: {'; '.join(conditions.noise_reasons(seen)) or 'by nothing that was seen'}"
    )
    if 0.0 in found and differing(found[0.0]) > ALLOWED * len(found[0.0]):
        raise SystemExit("A/A: a file was found different from itself too often")
    for share, rows in found.items():
        if share >= TO_FIND and harness.share(differing(rows), len(rows))[1] < FOUND:
            raise SystemExit(f"{share:.1%} slower was found too seldom")


def of_network(network: str, precision: str, target: str) -> Opener:
    """What opens one of the reference networks, made if it is not there, and gives one call of it."""
    files = bundle.read(make(network, precision, target))
    manifest = files.manifest
    x = np.random.default_rng(0).random(manifest.input.shape, dtype=np.float32)

    def opened() -> Call:
        with quiet_native():
            backend = open_backend(manifest.target, files.model_files(), manifest.inputs, manifest.outputs)
        return timed_call(backend, x)

    return opened


def slowed(opener: Opener, share: float) -> Opener:
    """The same, with a wait after each call for that share of its p50, found anew at each opening."""

    def opened() -> Call:
        call = opener()
        own_ns = _p50_ns(_late(_nothing, 0)) - _p50_ns(_nothing)  # what the waiting costs beside the wait
        return _late(call, round(share * _p50_ns(call) - own_ns))

    return opened


def _late(call: Call, wait_ns: int) -> Call:
    def late() -> object:
        answer = call()
        until = time.perf_counter_ns() + wait_ns
        while time.perf_counter_ns() < until:
            pass
        return answer

    return late


def _nothing() -> None:
    pass


def compared(first: Opener, second: Opener, config: BenchmarkConfig) -> tuple[RatioInterval, int, np.ndarray]:
    """p50 of the second over the first's, how many openings it took, and the first's milliseconds."""
    numbers = (config.rounds, config.most_rounds, config.calls_per_round, config.warmup_per_round)
    for samples_ms, openings in timed_openings({"first": first, "second": second}, *numbers):
        ratio = intervals.ratio_interval(samples_ms["second"], samples_ms["first"], openings, config.confidence)
        if not intervals.is_too_wide(ratio.low, ratio.high, config.tie_margin):
            break
    return ratio, openings, samples_ms["first"]


def differs(ratio: RatioInterval) -> bool:
    """What the stage's tables, its waterfall and its verdict say of such a ratio."""
    return faster(ratio.ratio, ratio.low, ratio.high) != NO_DIFFERENCE


def differing(rows: list[tuple[RatioInterval, int]]) -> int:
    return sum(differs(ratio) for ratio, _ in rows)


def row(share: float, rows: list[tuple[RatioInterval, int]]) -> str:
    count = differing(rows)
    low, high = harness.share(count, len(rows))
    name = f"{share:.1%}" if share else "nothing (A/A)"
    middle = median(ratio.ratio for ratio, _ in rows)
    openings = median(each for _, each in rows)
    interval = f"{low:.1%} to {high:.1%}"
    return f"{name:<16}{f'{count} of {len(rows)}':>15}   {interval:<18}{middle:>13.4f}{openings:>10.0f}"


def _p50_ns(call: Call) -> float:
    samples_ms = time_interleaved({"call": call}, 1, CALIBRATING_CALLS, CALIBRATING_CALLS)["call"]
    return 1e6 * float(np.median(samples_ms))


if __name__ == "__main__":
    main()
