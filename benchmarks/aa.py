"""A/A check: is a file measured as different from itself, and is a slow-down of 3 % detected?

    python -m benchmarks.aa [--repetitions 100] [--network resnet8] [--precision int8] [--target tflite]

Each repetition is a complete comparison with the defaults of the benchmark stage: both sides are opened many times,
rounds are added while the interval is too wide, and there is a difference if the interval excludes 1. Both sides are
the same file. For a slow-down, one of them waits after each call for a share of its own p50, which is calibrated at
each opening. Repetitions with and without a slow-down alternate. The exit code is 1 if the file differs from itself in
more than 5 % of the repetitions, or if a slow-down of 3 % is detected in significantly fewer than 95 % of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks import harness
from benchmarks.networks import network_bundle
from edgekit.core.execution import timed_call
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine_facts, time_interleaved, timed_openings
from edgekit.device.measure.intervals import RatioInterval
from edgekit.report.formatting import faster
from edgekit.runner import bundle
from edgekit.runner.backends import open_backend
from edgekit.runner.native_stderr import quiet_native
from edgekit.stages.benchmark import BenchmarkConfig
from edgekit.stages.benchmark.decision import is_too_wide

NO_DIFFERENCE = "no difference"
MAX_FALSE_SHARE = 0.05
REQUIRED_SLOWDOWN, REQUIRED_SHARE = 0.03, 0.95
CALIBRATING_CALLS = 40

Call = Callable[[], object]
Opener = Callable[[], Call]


def main() -> None:
    """Measure, and print a row for each slow-down and the noise."""
    parser = harness.parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--network", default="resnet8")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--target", default="tflite")
    parser.add_argument("--slowdowns", default="0,1.5,3", help="percent; 0 is the file against itself")
    options = parser.parse_args()
    opener = network_opener(options.network, options.precision, options.target)
    config = BenchmarkConfig()
    slowdowns = [float(word) / 100 for word in options.slowdowns.split(",")]
    results: dict[float, list[tuple[RatioInterval, int]]] = {share: [] for share in slowdowns}
    p50s_ms: list[float] = []
    noises: list[float] = []
    with conditions.ConditionsRecorder() as recorder:
        for _ in range(options.repetitions):
            for share in slowdowns:
                ratio, openings, samples_ms = compare(opener, slowed_opener(opener, share) if share else opener, config)
                results[share].append((ratio, openings))
                p50s_ms.append(float(np.median(samples_ms)))
                noises.append(conditions.noise(samples_ms, openings) or 0.0)
                recorder.sample()
    machine = machine_facts()
    variant = f"{options.network}-{options.precision}-{options.target}"
    print(f"{variant}, p50 {1000 * median(p50s_ms):.1f} µs, on {machine['cpu']}, {machine['cores']} cores, one thread")
    print(f"{'takes longer by':<16}{'differs':>15}   {'95 % interval':<18}{'median ratio':>13}{'openings':>10}")
    for share, rows in results.items():
        print(table_row(share, rows))
    noise_record = recorder.result(median(noises))
    print(
        f"noise {noise_record.noise:.1%}; disturbed: "
        f"{'; '.join(conditions.noise_reasons(noise_record)) or 'nothing was observed'}"
    )
    if 0.0 in results and count_differing(results[0.0]) > MAX_FALSE_SHARE * len(results[0.0]):
        raise SystemExit("A/A: the file was measured as different from itself too often")
    for share, rows in results.items():
        if share >= REQUIRED_SLOWDOWN and harness.share_interval(count_differing(rows), len(rows))[1] < REQUIRED_SHARE:
            raise SystemExit(f"a slow-down of {share:.1%} was detected too rarely")


def network_opener(network: str, precision: str, target: str) -> Opener:
    """Return a function that opens a reference network, making its bundle if necessary, and returns one call."""
    files = bundle.read(network_bundle(network, precision, target))
    manifest = files.manifest
    x = np.random.default_rng(0).random(manifest.input.shape, dtype=np.float32)

    def open_network() -> Call:
        with quiet_native():
            backend = open_backend(manifest.target, files.model_files(), manifest.inputs, manifest.outputs)
        return timed_call(backend, x)

    return open_network


def slowed_opener(opener: Opener, share: float) -> Opener:
    """Return an opener whose calls wait, after each answer, for the given share of their p50.

    The wait is calibrated at each opening.
    """

    def open_slowed() -> Call:
        call = opener()
        overhead_ns = _p50_ns(_with_wait(_do_nothing, 0)) - _p50_ns(_do_nothing)  # cost of the waiting loop itself
        return _with_wait(call, round(share * _p50_ns(call) - overhead_ns))

    return open_slowed


def _with_wait(call: Call, wait_ns: int) -> Call:
    def call_and_wait() -> object:
        answer = call()
        deadline = time.perf_counter_ns() + wait_ns
        while time.perf_counter_ns() < deadline:
            pass
        return answer

    return call_and_wait


def _do_nothing() -> None:
    pass


def compare(first: Opener, second: Opener, config: BenchmarkConfig) -> tuple[RatioInterval, int, np.ndarray]:
    """Return the ratio of the second's p50 to the first's, the number of openings and the first's samples in ms."""
    numbers = (config.rounds, config.most_rounds, config.calls_per_round, config.warmup_per_round)
    for samples_ms, openings in timed_openings({"first": first, "second": second}, *numbers):
        ratio = intervals.ratio_interval(samples_ms["second"], samples_ms["first"], openings, config.confidence)
        if not is_too_wide(ratio.low, ratio.high, config.tie_margin):
            break
    return ratio, openings, samples_ms["first"]


def differs(ratio: RatioInterval) -> bool:
    """Whether the tables and the verdict of the stage would report a difference for this ratio."""
    return faster(ratio.ratio, ratio.low, ratio.high) != NO_DIFFERENCE


def count_differing(rows: list[tuple[RatioInterval, int]]) -> int:
    return sum(differs(ratio) for ratio, _ in rows)


def table_row(share: float, rows: list[tuple[RatioInterval, int]]) -> str:
    count = count_differing(rows)
    low, high = harness.share_interval(count, len(rows))
    name = f"{share:.1%}" if share else "nothing (A/A)"
    median_ratio = median(ratio.ratio for ratio, _ in rows)
    openings = median(count_of_openings for _, count_of_openings in rows)
    interval = f"{low:.1%} to {high:.1%}"
    return f"{name:<16}{f'{count} of {len(rows)}':>15}   {interval:<18}{median_ratio:>13.4f}{openings:>10.0f}"


def _p50_ns(call: Call) -> float:
    samples_ms = time_interleaved({"call": call}, 1, CALIBRATING_CALLS, CALIBRATING_CALLS)["call"]
    return 1e6 * float(np.median(samples_ms))


if __name__ == "__main__":
    main()
