"""Measure samples per second of the training loop, for an older commit, today's code, and today's with other options.

    python -m benchmarks.training [--before COMMIT] [--also training.precision=bfloat16] [--config FILE]

Each loop trains the same network on the same samples in a process of its own. The loops alternate epoch by epoch, so
that whatever slows the machine slows all of them. The first epoch includes one-time work, so it is reported separately
and not used in ratios. Ratios compare epochs of the same round and have an interval. The accuracy is that of the
weights that the training keeps, with Wilson's interval. `same bits` says that these weights are identical to the first
loop's. A setting in capitals is an environment variable: `--also EDGEKIT_SPLIT_MB=0` trains from memory-mapped files.
On a quiet machine, the number of busy cores shows whether the training waits for its samples.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import BUILD, ROOT, machine_conditions, median_ratio, parser, rotated_orders, share_interval

WORKER = Path(__file__).with_name("worker.py")
MARK = "::"


@dataclass
class TrainingLoop:
    """One training in a process of its own, with the times of its epochs."""

    name: str
    process: subprocess.Popen[str]
    samples: int = 0
    read_s: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    def next_row(self) -> dict[str, Any]:
        """Return the next row that the process prints.

        Raises
        ------
        SystemExit
            The process ended before it printed a row.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                row: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return row
        raise SystemExit(f"{self.name}: the training ended with {self.process.wait()}")

    def run_epoch(self) -> None:
        """Let the process run its next epoch."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.epochs.append(self.next_row())

    def seconds(self, *clocks: str) -> list[float]:
        """Return the sum of these clocks for each epoch except the first."""
        return [sum(row[clock] for clock in clocks) for row in self.epochs[1:]]


def main() -> None:
    """Run all loops and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--before", metavar="COMMIT", default="", help="an older loop beside today's")
    arguments.add_argument("--also", action="append", default=[], metavar="KEY=VALUE", help="today's with this setting")
    arguments.add_argument("--config", default=str(ROOT / "configs" / "cifar10.yaml"))
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the config")
    arguments.add_argument("--limit", type=int, default=6000, help="samples of the train pool; 0: all")
    arguments.add_argument("--epochs", type=int, default=12, help="11 or more, for the intervals")
    arguments.add_argument("--json", metavar="FILE", default="", help="write every figure here")
    options = arguments.parse_args()
    settings = [*options.set, *([f"data.limit={options.limit}"] if options.limit else [])]
    request: dict[str, Any] = {"settings": settings, "epochs": options.epochs}
    variants = [("before", _extract_commit(options.before), request)] if options.before else []
    variants.append(("now", ROOT, request))
    variants += [(setting, ROOT, {**request, "settings": [*settings, *setting.split()]}) for setting in options.also]
    conditions_before = machine_conditions()
    with ExitStack() as stack:
        loops = [_start_loop(name, root, options.config, loop_request, stack) for name, root, loop_request in variants]
        for number, order in enumerate(rotated_orders(loops, options.epochs)):
            print(f"epoch {number + 1} of {options.epochs}", file=sys.stderr)
            for loop in order:
                loop.run_epoch()
        for loop in loops:
            loop.end = loop.next_row()
    print(f"{conditions_before}, load after {os.getloadavg()[0]:.1f}\n{options.config} {settings}")
    _print_table(loops)
    if options.json:
        rows = [{"name": loop.name, "samples": loop.samples, "epochs": loop.epochs, **loop.end} for loop in loops]
        Path(options.json).write_text(json.dumps(rows))


def _start_loop(name: str, root: Path, config: str, request: dict[str, Any], stack: ExitStack) -> TrainingLoop:
    variables = dict(each.split("=", 1) for each in request["settings"] if each.partition("=")[0].isupper())
    settings = [each for each in request["settings"] if not each.partition("=")[0].isupper()]
    command = [sys.executable, "-P", str(WORKER), config, json.dumps({**request, "settings": settings})]
    environment = {**os.environ, "PYTHONPATH": str(root), **variables}
    process = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    )
    stack.callback(process.kill)
    loop = TrainingLoop(name, process)
    first_row = loop.next_row()
    loop.samples, loop.read_s = first_row["samples"], first_row["read_s"]
    return loop


def _extract_commit(commit: str) -> Path:
    """Extract the package at a commit and return its folder."""
    folder = BUILD / "bench" / "before" / commit.replace("/", "_")
    archive_bytes = subprocess.run(
        ["git", "archive", commit, "edgekit"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive_bytes)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _print_table(loops: list[TrainingLoop]) -> None:
    """Print medians over epochs, and ratios to the first loop within a round."""
    first = loops[0]
    for loop in loops:
        wall_s, user_s, system_s = (median(loop.seconds(clock)) for clock in ("wall_s", "user_s", "system_s"))
        print(
            f"\n{loop.name}: {loop.samples / wall_s:,.0f} samples per second; epoch {wall_s:.2f} s, CPU {user_s:.2f} s "
            f"and {system_s:.2f} s in the kernel, {(user_s + system_s) / wall_s:.2f} cores busy; "
            f"the first epoch {loop.epochs[0]['wall_s']:.2f} s; the data were read in {loop.read_s:.2f} s; "
            f"peak {loop.end['peak_kb'] / 1024:.0f} MB"
        )
        if loop is not first:
            for title, clocks in (("throughput", ("wall_s",)), ("samples per CPU second", ("user_s", "system_s"))):
                ratio = median_ratio(first.seconds(*clocks), loop.seconds(*clocks))
                print(f"  {title}: {ratio.text('{:.3f}')} times {first.name}'s")
        same_bits = "; same bits" if loop is not first and loop.end["sha256"] == first.end["sha256"] else ""
        if loop.end["right"] is None:
            print(f"  accuracy {loop.end['accuracy']:.2%}{same_bits}")
            continue
        low, high = share_interval(round(sum(loop.end["right"])), len(loop.end["right"]))
        print(f"  accuracy {loop.end['accuracy']:.2%} ({low:.2%} to {high:.2%}){same_bits}")
        if loop is not first and not same_bits:
            differences = np.array(loop.end["right"], float) - np.array(first.end["right"], float)
            margin = 1.96 * differences.std() / math.sqrt(len(differences))
            print(f"  {100 * differences.mean():+.2f} pp, give or take {100 * margin:.2f} pp, on the same samples")


if __name__ == "__main__":
    main()
