"""Samples per second of the training loop: of an older one, of today's, and of today's with other options.

    python -m benchmarks.training [--before COMMIT] [--also training.precision=bfloat16] [--config FILE]

Each loop trains the same network on the same samples, in a process of its own. They take turns epoch by epoch, so that
whatever slows the machine slows all. The first epoch is left out of the quotients and stands apart, for it holds what
is done once. Quotients are those of the epochs of one round, with their interval. Accuracy is that of the weights that
were kept, with Wilson's interval. `same bits` says whether these weights are the very same.
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

from benchmarks.harness import BUILD, ROOT, conditions, parser, quotient, share, turns

WORKER = Path(__file__).with_name("worker.py")
MARK = "::"


@dataclass
class Loop:
    """One training in its process, and what each of its epochs took."""

    name: str
    process: subprocess.Popen[str]
    samples: int = 0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    def answer(self) -> dict[str, Any]:
        """The next row; SystemExit where the process ended before it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                row: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return row
        raise SystemExit(f"{self.name}: the training ended with {self.process.wait()}")

    def epoch(self) -> None:
        """Let it make the next one."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.epochs.append(self.answer())

    def seconds(self, *clocks: str) -> list[float]:
        """What each epoch but the first took by these clocks together."""
        return [sum(row[clock] for clock in clocks) for row in self.epochs[1:]]


def main() -> None:
    """The table."""
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
    wanted: dict[str, Any] = {"settings": settings, "epochs": options.epochs}
    kinds = [("before", _extracted(options.before), wanted)] if options.before else []
    kinds.append(("now", ROOT, wanted))
    kinds += [(also, ROOT, {**wanted, "settings": [*settings, *also.split()]}) for also in options.also]
    facts = conditions()
    with ExitStack() as stack:
        loops = [_started(name, root, options.config, of, stack) for name, root, of in kinds]
        for number, order in enumerate(turns(loops, options.epochs)):
            print(f"epoch {number + 1} of {options.epochs}", file=sys.stderr)
            for loop in order:
                loop.epoch()
        for loop in loops:
            loop.end = loop.answer()
    print(f"{facts}, load after {os.getloadavg()[0]:.1f}\n{options.config} {settings}")
    _table(loops)
    if options.json:
        rows = [{"name": loop.name, "samples": loop.samples, "epochs": loop.epochs, **loop.end} for loop in loops]
        Path(options.json).write_text(json.dumps(rows))


def _started(name: str, root: Path, config: str, wanted: dict[str, Any], stack: ExitStack) -> Loop:
    command = [sys.executable, "-P", str(WORKER), config, json.dumps(wanted)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    )
    stack.callback(process.kill)
    loop = Loop(name, process)
    loop.samples = loop.answer()["samples"]
    return loop


def _extracted(commit: str) -> Path:
    """The package as it was."""
    folder = BUILD / "bench" / "before" / commit.replace("/", "_")
    packed = subprocess.run(["git", "archive", commit, "edgekit"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _table(loops: list[Loop]) -> None:
    """Medians over epochs; quotients to the first within a round."""
    first = loops[0]
    for loop in loops:
        wall_s, user_s, system_s = (median(loop.seconds(clock)) for clock in ("wall_s", "user_s", "system_s"))
        print(
            f"\n{loop.name}: {loop.samples / wall_s:,.0f} samples per second; epoch {wall_s:.2f} s, CPU {user_s:.2f} s "
            f"and {system_s:.2f} s in the kernel; the first epoch {loop.epochs[0]['wall_s']:.2f} s; "
            f"peak {loop.end['peak_kb'] / 1024:.0f} MB"
        )
        if loop is not first:
            for said, clocks in (("throughput", ("wall_s",)), ("samples per CPU second", ("user_s", "system_s"))):
                found = quotient(first.seconds(*clocks), loop.seconds(*clocks))
                print(f"  {said}: {found.text('{:.3f}')} times {first.name}'s")
        same = "; same bits" if loop is not first and loop.end["sha256"] == first.end["sha256"] else ""
        if loop.end["right"] is None:
            print(f"  accuracy {loop.end['accuracy']:.2%}{same}")
            continue
        low, high = share(round(sum(loop.end["right"])), len(loop.end["right"]))
        print(f"  accuracy {loop.end['accuracy']:.2%} ({low:.2%} to {high:.2%}){same}")
        if loop is not first and not same:
            differ = np.array(loop.end["right"], float) - np.array(first.end["right"], float)
            half = 1.96 * differ.std() / math.sqrt(len(differ))
            print(f"  {100 * differ.mean():+.2f} pp, give or take {100 * half:.2f} pp, on the same samples")


if __name__ == "__main__":
    main()
