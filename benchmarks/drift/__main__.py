"""Drifts, false alarms and peers: `python -m benchmarks.drift [--quick] [--only SUBJECT]`."""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.drift import figure, page, tables
from benchmarks.drift.measured import Bench, Result
from benchmarks.drift.plan import QUICK, WHOLE, Plan
from edgekit.runner.files import write_atomically
from edgekit.runner.measure.bench import machine

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "drift-results"
PAGE, PICTURE = ROOT / "docs" / "results" / "drift.md", ROOT / "docs" / "results" / "drift.png"
SUBJECTS = ("cifar10", "words", "motion", "digits")


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.drift",
        description="How early seeded drifts are found, and how often something is found that is not there. Writes "
        "docs/results/drift.md and its figure. `make drift` makes the environment of the offline peers first.",
    )
    parser.add_argument("--quick", action="store_true", help="few streams, no offline peers; prints, writes no page")
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="this subject; prints, writes no page")
    parser.add_argument("--page", action="store_true", help="write the page again, of the last whole run")
    return parser


def main() -> int:
    """Two subjects at a time, each in a process of its own."""
    options = arguments().parse_args()
    if options.page:
        return _again()
    plan = QUICK if options.quick else WHOLE
    chosen = tuple(options.only or SUBJECTS)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    begun = time.perf_counter()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        said = list(pool.map(measured, chosen, [plan] * len(chosen)))
    results = [result for result, _ in said if result is not None]
    facts = {"cpu": machine()["cpu"], "date": date.today().isoformat(), "cpu_s": sum(cpu_s for _, cpu_s in said)}
    if not results:
        print("no subject could be measured", file=sys.stderr)
        return 1
    if plan.quick or options.only:
        print("\n\n".join([*map(tables.drifts, results), tables.summary(results), tables.sound(results)]))
    else:
        KEPT.mkdir(parents=True, exist_ok=True)
        write_atomically(KEPT / "results.pickle", pickle.dumps((results, plan, facts)))
        written(results, plan, facts)
    took = time.perf_counter() - begun
    print(f"took {took:.0f} s, {facts['cpu_s']:.0f} s of processor time", file=sys.stderr)
    return 0


def measured(name: str, plan: Plan) -> tuple[Result | None, float]:
    """A subject's result, None where its data are not there, and the processor time that it took."""
    begun = _cpu_s()
    try:
        bench = Bench(import_module(f"benchmarks.drift.subjects.{name}").load(plan.quick), plan)
    except FileNotFoundError as reason:
        print(f"{name} is left out: {reason}", file=sys.stderr)
        return None, 0.0
    bench.drifts()
    bench.sounds()
    print(f"{name}: {({key: round(value) for key, value in bench.result.seconds.items()})} s", file=sys.stderr)
    return bench.result, _cpu_s() - begun


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def written(results: list[Result], plan: Plan, facts: dict[str, Any]) -> None:
    """The page and its figure."""
    figure.write(results, PICTURE)
    write_atomically(PAGE, page.text(results, plan, facts).encode())
    print(f"written: {PAGE} and {PICTURE.name}", file=sys.stderr)


def _again() -> int:
    path = KEPT / "results.pickle"
    if not path.is_file():
        print(f"{path} is not there; run it without --page first", file=sys.stderr)
        return 1
    written(*pickle.loads(path.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
