"""What it costs a device to check a signature: one load in signed mode, beside the same load without a policy.

    python -m benchmarks.trust [--checks 100]

Both are asked in turns in one process. `ssh-keygen` is a child, and its processor time counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgekit.runner import bundle
from edgekit.runner.trust import check
from tests.runner.releases.device import write
from tests.runner.trust.desk import set_up


def used_s() -> float:
    """Processor time of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


def taken(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time, milliseconds."""
    began, before = time.perf_counter(), used_s()
    work()
    return 1e3 * (time.perf_counter() - began), 1e3 * (used_s() - before)


def spread(values: list[float]) -> str:
    """Median, and what nine of ten lie within."""
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return f"{middle:5.1f} ms ({low:.1f}–{high:.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--checks", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgekit-trust-") as folder:
        desk = set_up(Path(folder))
        path = write(desk.home / "tiny.edge.zip", provenance={"noise": os.urandom(18_000).hex()})
        desk.sign(path=path, counter=1)
        print(f"a bundle of {path.stat().st_size:,} bytes, {options.checks} times each, in turns")
        rows: dict[str, list[tuple[float, float]]] = {"read": [], "check": []}
        for _ in range(options.checks):
            rows["read"].append(taken(lambda: bundle.read(path)))
            rows["check"].append(taken(lambda: check(path, desk.trust, None)))
        for name, said in (("read", "read, digests of all members"), ("check", "policy and statement verified")):
            wall, cpu = map(list, zip(*rows[name], strict=True))
            print(f"{said:<30} wall {spread(wall)}, processor {spread(cpu)}")


if __name__ == "__main__":
    main()
