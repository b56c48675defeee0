"""Drifts, false alarms and peers: `python -m benchmarks.drift [--quick] [--only SUBJECT] [--ours] [--page]`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path

from benchmarks.drift import figure, page, run, tables
from benchmarks.drift.measured import Result
from benchmarks.drift.plan import QUICK, WHOLE
from edgekit.device.measure.bench import machine
from edgekit.runner.files import write_atomically

ROOT = Path(__file__).parents[2]
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
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="this subject; repeat for more")
    parser.add_argument("--ours", action="store_true", help="the monitor alone, beside the peers of the last run")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of the last run again")
    return parser


def main() -> int:
    """Two subjects at a time, each in a process of its own."""
    options, begun = arguments().parse_args(), time.perf_counter()
    plan, chosen = QUICK if options.quick else WHOLE, tuple(options.only or SUBJECTS)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    if not options.page:
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            said = list(pool.map(run.measured, chosen, [plan] * len(chosen), [not options.ours] * len(chosen)))
        print(f"took {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    results = said if options.quick else [run.kept(name) for name in SUBJECTS]
    there = [result for result in results if result is not None]
    if not there:
        print("no subject was measured", file=sys.stderr)
        return 1
    if options.quick:
        print("\n\n".join([*map(tables.drifts, there), tables.summary(there), tables.sound(there)]))
    else:
        written(there)
    return 0


def written(results: list[Result]) -> None:
    """The page and its figure."""
    facts = {"cpu": machine()["cpu"], "date": date.today().isoformat(), "cpu_s": sum(each.cpu_s for each in results)}
    figure.write(results, PICTURE)
    write_atomically(PAGE, page.text(results, WHOLE, facts).encode())
    print(f"written: {PAGE} and {PICTURE.name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
