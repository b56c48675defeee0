"""How much faster works that sleep end on several workers than on one: what the pool itself costs.

python -m benchmarks.workers                       processes of this machine
python -m benchmarks.workers --on dask://HOST:PORT workers of a scheduler
"""

from __future__ import annotations

import argparse
import time

from edgekit.workbook.workers import Pool, Work, open_pool

WORKS = 8
SECONDS = 5.0


def seconds_of(pool: Pool, seconds: float) -> float:
    """Wall time of all works."""
    works = [Work(f"sleeps {number}", "benchmarks.workers:sleep", {"seconds": seconds}) for number in range(WORKS)]
    began = time.monotonic()
    pool.run(works)
    return time.monotonic() - began


def sleep(seconds: float) -> None:
    """A work without a processor."""
    time.sleep(seconds)


def main() -> None:
    """Print a row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", help="a scheduler, in the place of 1, 2 and 4 processes of this machine")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each of the works sleeps")
    given = parser.parse_args()
    alone_s = WORKS * given.seconds
    print(f"{WORKS} works, each sleeps {given.seconds:g} s: {alone_s:g} s one after the other")
    first_s = None
    for workers in [1] if given.on else [1, 2, 4]:
        with open_pool(workers, given.on) as pool:
            took_s = seconds_of(pool, given.seconds)
            first_s = first_s or took_s
            print(
                f"{pool.count} workers: {took_s:.1f} s, {alone_s / took_s:.2f} times faster than the sleeps in a row, "
                f"{first_s / took_s:.2f} times faster than the first row"
            )


if __name__ == "__main__":
    main()
