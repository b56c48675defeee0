"""Drifts, false alarms and peers: `python -m benchmarks.drift [--quick] [--only SUBJECT]`."""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.drift import figure, page, tables
from benchmarks.drift.measured import Result
from benchmarks.drift.run import beside, measured
from benchmarks.drift.plan import QUICK, WHOLE, Plan
from edgekit.runner.files import write_atomically
from edgekit.runner.measure.bench import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "drift-results.pickle"
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
    parser.add_argument("--ours", action="store_true", help="the monitor alone, beside the peers of the last whole run")
    return parser


def main() -> int:
    """Two subjects at a time, each in a process of its own."""
    options = arguments().parse_args()
    plan, chosen = QUICK if options.quick else WHOLE, tuple(options.only or SUBJECTS)
    last = _last() if options.page or options.ours else None
    if (options.page or options.ours) and last is None:
        print(f"{RESULTS} is not there; run it without --page and --ours first", file=sys.stderr)
        return 1
    if options.page and last is not None:
        written(*last)
        return 0
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    begun = time.perf_counter()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        said = list(pool.map(measured, chosen, [plan] * len(chosen), [not options.ours] * len(chosen)))
    results = [result for result, _ in said if result is not None]
    facts = {"cpu": machine()["cpu"], "date": date.today().isoformat(), "cpu_s": sum(taken for _, taken in said)}
    if not results:
        print("no subject could be measured", file=sys.stderr)
        return 1
    if last is not None:
        results, facts["cpu_s"] = [beside(each, last[0]) for each in results], last[2]["cpu_s"]
    if plan.quick or options.only:
        print("\n\n".join([*map(tables.drifts, results), tables.summary(results), tables.sound(results)]))
    else:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(RESULTS, pickle.dumps((results, plan, facts)))
        written(results, plan, facts)
    print(f"took {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return 0


def _last() -> tuple[list[Result], Plan, dict[str, Any]] | None:
    return pickle.loads(RESULTS.read_bytes()) if RESULTS.is_file() else None  # type: ignore[no-any-return]


def written(results: list[Result], plan: Plan, facts: dict[str, Any]) -> None:
    """The page and its figure."""
    figure.write(results, PICTURE)
    write_atomically(PAGE, page.text(results, plan, facts).encode())
    print(f"written: {PAGE} and {PICTURE.name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
