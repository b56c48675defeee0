"""Measure what serving costs.

    python -m benchmarks.serving [BUNDLES] [--only NAME] [--rounds N]

The server runs on one core and the load generator on another. The results are written to build/serving/report.md and
report.json. With the defaults this takes about 15 minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import ROOT, ExperimentResult, NotRun, machine_conditions, parser, write_report
from benchmarks.serving.experiments import overload, peers, rest
from benchmarks.serving.machine import HOME
from benchmarks.serving.plan import ServingPlan
from edgekit.runner.errors import RunnerError

DIGITS = ROOT / "artifacts" / "digits" / "bundles"
EXPERIMENTS: dict[str, tuple[str, Callable[[ServingPlan], ExperimentResult]]] = {
    "peers": (peers.TITLE, peers.measure),
    "rest": (rest.TITLE, rest.measure),
    "overload": (overload.TITLE, overload.measure),
}


def main() -> int:
    """Run all experiments one after the other. An experiment that cannot be run is reported as such."""
    arguments = parser(__doc__, "python -m benchmarks.serving")
    arguments.add_argument("bundles", nargs="?", type=Path, default=DIGITS, help="folder of the digits' bundles")
    arguments.add_argument("--only", action="append", choices=EXPERIMENTS, help="this experiment; repeat for more")
    arguments.add_argument("--rounds", type=int, default=10, help="fewer than 10 give no interval (default: 10)")
    arguments.add_argument("--scale", type=float, default=1.0, help="multiplies how long load lasts (default: 1)")
    options = arguments.parse_args()
    if options.rounds < 1:
        arguments.error(f"--rounds: got {options.rounds}; use a whole number from 1")
    if not 0 < options.scale <= 100:
        arguments.error(f"--scale: got {options.scale:g}; use a number above 0, up to 100")
    plan = ServingPlan(options.bundles.absolute(), options.rounds, options.scale)
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    shutil.rmtree(HOME / "cache", ignore_errors=True)  # so that interpreters are chosen in this run
    (HOME / "cache").mkdir(parents=True)
    conditions, results = {**machine_conditions(), "rounds": plan.rounds, "scale": plan.scale}, []
    for name in options.only or EXPERIMENTS:
        results.append(run(name, plan))
        print(results[-1].text(), flush=True)
        write_report(HOME, conditions, results)
    print(f"written: {HOME / 'report.md'} and report.json", file=sys.stderr)
    return 0


def run(name: str, plan: ServingPlan) -> ExperimentResult:
    """Return the result of an experiment, or the reason why there is none."""
    title, measure = EXPERIMENTS[name]
    started, load_before = time.monotonic(), os.getloadavg()[0]
    try:
        result = measure(plan)
    except (NotRun, RunnerError, OSError, subprocess.SubprocessError) as reason:
        result = ExperimentResult(name, title, missing=[f"all of it: {reason}"])
    result.seconds, result.load_before = time.monotonic() - started, load_before
    return result


if __name__ == "__main__":
    sys.exit(main())
