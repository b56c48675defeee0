"""The mutation check: each seeded fault, put into a copy of the tree, must make a test or a notebook fail.

`python -m tests.mutants.check [NAME …] [--jobs 1] [--json FILE] [--leave-out TEST …] [--own-tests]`

A copy without a fault goes through the same commands first: a failure there shows nothing, so the check
ends with exit code 2. It ends with 1 where more than one fault survives.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.copy import CheckError, Copy, end_all
from tests.mutants.seeds import SEEDS, Seed

ROOT = Path(__file__).resolve().parents[2]
PATIENCE, LEAST_S = 4, 120
"""A fault's command may take so many times what the control's took, and so many seconds: then it hangs."""
SURVIVORS = 1
"""How many faults may go unseen."""
OWN, OTHER, NOTEBOOKS = "its tests", "other tests", "notebooks"


@dataclass(frozen=True)
class Verdict:
    """`caught_by` names the test or the failing cell; empty: the fault survived. `step` is where that was."""

    seed: str
    step: str
    caught_by: str
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.caught_by)


class Control:
    """The copy without a fault. Each step goes through it once, before its result for a fault counts."""

    def __init__(self, copy: Copy, seeds: Iterable[Seed], leave_out: Sequence[str]) -> None:
        self.copy, self.leave_out = copy, leave_out
        self.tests = tuple(dict.fromkeys(test for seed in seeds for test in seed.tests))
        self._one_at_a_time = threading.Lock()
        self._pass = functools.cache(self._run)

    def require(self, step: str) -> float:
        """Seconds that the step takes; CheckError naming what fails without any fault."""
        with self._one_at_a_time:
            seconds, failed = self._pass(step)
        if failed:
            raise CheckError("fails without any fault, so nothing counts:\n  " + "\n  ".join(failed))
        return seconds

    def _run(self, step: str) -> tuple[float, list[str]]:
        started = time.monotonic()
        failed = execute(self.copy, step, self.tests, self.leave_out, stop=False)
        seconds = time.monotonic() - started
        print(f"control: {step}, {seconds:.0f} s", flush=True)
        return seconds, failed


def execute(copy: Copy, step: str, tests: Sequence[str], leave_out: Sequence[str], *, stop: bool) -> list[str]:
    """What fails in one step; `tests` are those of the first one, which the second leaves out after a fault."""
    if step == NOTEBOOKS:
        return copy.run_notebooks()
    options = [f"--deselect={test}" for test in leave_out] + (["-x"] if stop else [])
    if step == OWN:
        return copy.pytest(*options, *tests)
    return copy.pytest(*options, *(f"--deselect={test}" for test in tests if stop), "tests")


def run_seed(seed: Seed, source: Copy, control: Control, steps: Sequence[str]) -> Verdict:
    """Put one fault into a fresh copy and look for the first step that notices."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgekit-mutant-") as home:
        copy = Copy(source.tree, Path(home))
        copy.apply(seed)
        for step in steps:
            copy.limit_s = max(LEAST_S, PATIENCE * control.require(step))
            if failed := execute(copy, step, seed.tests, control.leave_out, stop=True):
                return Verdict(seed.name, step, failed[0], time.monotonic() - started)
    return Verdict(seed.name, "", "", time.monotonic() - started)


def check(
    seeds: Sequence[Seed],
    *,
    jobs: int = 1,
    leave_out: Sequence[str] = (),
    steps: Sequence[str] = (OWN, OTHER, NOTEBOOKS),
) -> list[Verdict]:
    """Every seed's verdict, printed as it is found. The tree is copied once at the start, so it may change later."""
    with tempfile.TemporaryDirectory(prefix="edgekit-control-") as home:
        original = Copy(ROOT, Path(home) / "original")
        for seed in seeds:
            original.text_of(seed)  # a seed that no longer fits is found before hours of tests, not after
        control = Control(Copy(original.tree, Path(home) / "control"), seeds, leave_out)
        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(run_seed, seed, original, control, steps) for seed in seeds]
            try:
                return [print_verdict(future.result()) for future in running]
            finally:
                end_all()
                pool.shutdown(cancel_futures=True)


def print_verdict(verdict: Verdict) -> Verdict:
    """Print a row of the table."""
    by = f"{verdict.step}: {verdict.caught_by}" if verdict.caught else "SURVIVED"
    print(f"{verdict.seed:<36} {verdict.seconds:>5.0f} s  {by[:160]}", flush=True)
    return verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.check", description="The mutation check.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="seeds to check; all without")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there too")
    parser.add_argument("--leave-out", nargs="+", default=[], metavar="TEST", help="tests that say nothing today")
    parser.add_argument("--own-tests", action="store_true", help="only the tests that each seed names")
    options = parser.parse_args(arguments)
    known = {seed.name: seed for seed in SEEDS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such seed: {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in options.names] or list(SEEDS)
    steps = (OWN,) if options.own_tests else (OWN, OTHER, NOTEBOOKS)
    started = time.monotonic()
    try:
        verdicts = check(chosen, jobs=options.jobs, leave_out=options.leave_out, steps=steps)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"\n{caught} of {len(verdicts)} faults caught in {time.monotonic() - started:.0f} s")
    if options.json:
        rows = [asdict(verdict) for verdict in verdicts]
        options.json.write_text(json.dumps({"caught": caught, "seeds": len(rows), "rows": rows}, indent=2) + "\n")
    return 0 if caught >= len(verdicts) - SURVIVORS else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
