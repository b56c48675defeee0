"""Samples per second of the training loop: of an older one, of today's, and of today's with other options.

    python -m benchmarks.training [--before COMMIT] [--also training.precision=bfloat16] [--config FILE]

Each loop trains the same network on the same samples, in a process of its own. They take turns epoch by epoch, so that
whatever slows the machine slows all. The first epoch is left out of the quotients and stands apart, for it holds what
is done once. Quotients are those of the epochs of one round, with their interval. Accuracy is that of the weights that
were kept, with Wilson's interval. `same bits` says whether these weights are the very same.
"""

from __future__ import annotations

import argparse
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
from statistics import NormalDist, median
from typing import Any

import numpy as np

from benchmarks.training import roof
from edgekit.device.measure.bench import machine
from edgekit.device.measure.intervals import ratio

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
CONFIDENCE = 0.95
MARK = "::"


@dataclass
class Loop:
    """One training in its process, and what each of its epochs took."""

    name: str
    process: subprocess.Popen[str]
    samples: int = 0
    threads: int = 1
    layers: list[list[int]] = field(default_factory=list)
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

    def ms(self, *clocks: str) -> np.ndarray:
        """What each epoch but the first took by these clocks together."""
        return np.array([1000 * sum(row[clock] for clock in clocks) for row in self.epochs[1:]])


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--before", metavar="COMMIT", default="", help="an older loop beside today's")
    parser.add_argument("--also", action="append", default=[], metavar="KEY=VALUE", help="today's with this setting")
    parser.add_argument("--config", default=str(ROOT / "configs" / "cifar10.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the config")
    parser.add_argument("--limit", type=int, default=6000, help="samples of the train pool; 0: all")
    parser.add_argument("--epochs", type=int, default=12, help="11 or more, for the intervals")
    parser.add_argument("--network", default="", help="package.module:function; none: the config's baseline")
    parser.add_argument("--kwargs", type=json.loads, default={}, help="its keyword arguments, JSON")
    parser.add_argument("--json", metavar="FILE", default="", help="write every figure here")
    options = parser.parse_args()
    settings = [*options.set, *([f"data.limit={options.limit}"] if options.limit else [])]
    wanted: dict[str, Any] = {"settings": settings, "epochs": options.epochs, "options": {}}
    if options.network:
        wanted["network"] = {"builder": options.network, "kwargs": options.kwargs}
    kinds = [("before", _extracted(options.before), wanted)] if options.before else []
    kinds.append(("now", ROOT, wanted))
    kinds += [(also, ROOT, {**wanted, "settings": [*settings, *also.split()]}) for also in options.also]
    load = os.getloadavg()
    with ExitStack() as stack:
        loops = [_started(name, root, options.config, of, stack) for name, root, of in kinds]
        for number in range(options.epochs):
            print(f"epoch {number + 1} of {options.epochs}", file=sys.stderr)
            for loop in (loops[(number + place) % len(loops)] for place in range(len(loops))):
                loop.epoch()
        for loop in loops:
            loop.end = loop.answer()
    print(f"{machine()}\nload {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after; {options.config} {settings}")
    _table(loops, options.epochs - 1)
    _roof(loops)
    if options.json:
        rows = [{"name": loop.name, "samples": loop.samples, "epochs": loop.epochs, **loop.end} for loop in loops]
        Path(options.json).write_text(json.dumps(rows))


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Ends of the score interval of a share (Wilson 1927)."""
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2)
    middle = (share + z * z / (2 * samples)) / (1 + z * z / samples)
    half = z / (1 + z * z / samples) * math.sqrt(share * (1 - share) / samples + (z / (2 * samples)) ** 2)
    return middle - half, middle + half


def _started(name: str, root: Path, config: str, wanted: dict[str, Any], stack: ExitStack) -> Loop:
    command = [sys.executable, "-P", str(WORKER), config, json.dumps(wanted)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    )
    stack.callback(process.kill)
    loop = Loop(name, process)
    ready = loop.answer()
    loop.samples, loop.threads, loop.layers = ready["samples"], ready["threads"], ready["layers"]
    return loop


def _extracted(commit: str) -> Path:
    """The package as it was."""
    folder = ROOT / "build" / "bench" / "before" / commit.replace("/", "_")
    packed = subprocess.run(["git", "archive", commit, "edgekit"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _table(loops: list[Loop], rounds: int) -> None:
    """Medians over epochs; quotients to the first within a round."""
    first = loops[0]
    for loop in loops:
        wall_s, user_s, system_s = (median(loop.ms(clock)) / 1000 for clock in ("wall_s", "user_s", "system_s"))
        print(
            f"\n{loop.name}: {loop.samples / wall_s:,.0f} samples per second; epoch {wall_s:.2f} s, CPU {user_s:.2f} s "
            f"and {system_s:.2f} s in the kernel; the first epoch {loop.epochs[0]['wall_s']:.2f} s; "
            f"peak {loop.end['peak_kb'] / 1024:.0f} MB"
        )
        if loop is not first and rounds >= 10:
            for said, clocks in (("throughput", ("wall_s",)), ("samples per CPU second", ("user_s", "system_s"))):
                found = ratio(first.ms(*clocks), loop.ms(*clocks), rounds, CONFIDENCE)
                print(f"  {said}: {found.ratio:.3f} times {first.name}'s ({found.low:.3f} to {found.high:.3f})")
        same = "; same bits" if loop is not first and loop.end["sha256"] == first.end["sha256"] else ""
        if loop.end["right"] is None:
            print(f"  accuracy {loop.end['accuracy']:.2%}{same}")
            continue
        low, high = wilson(loop.end["accuracy"], len(loop.end["right"]))
        print(f"  accuracy {loop.end['accuracy']:.2%} ({low:.2%} to {high:.2%}){same}")
        if loop is not first and not same:
            differ = np.array(loop.end["right"], float) - np.array(first.end["right"], float)
            half = 1.96 * differ.std() / math.sqrt(len(differ))
            print(f"  {100 * differ.mean():+.2f} pp, give or take {100 * half:.2f} pp, on the same samples")


def _roof(loops: list[Loop]) -> None:
    """Each loop's share of what the machine could do."""
    here = roof.machine(loops[0].threads)
    most = roof.samples_per_s(loops[0].layers, here)
    print(
        f"\nthis machine: {here.gmacs_per_s:.0f} G multiply-adds/s in float32, {here.bfloat16_gmacs_per_s:.0f} in "
        f"bfloat16, {here.gbytes_per_s:.1f} GB/s\nat most {most['computing']:,.0f} samples per second by "
        f"multiply-adds, {most['moving']:,.0f} by bytes, {most['roof']:,.0f} by the slower in each layer"
    )
    for loop in loops:
        reached = loop.samples / (median(loop.ms("user_s", "system_s")) / 1000 / loop.threads)
        shares = [f"{reached / most[side]:.0%} of {said}" for side, said in (("roof", "the roof"), ("computing", "it"))]
        print(f"  {loop.name}: {shares[0]}, {shares[1]} were bytes free")


if __name__ == "__main__":
    main()
