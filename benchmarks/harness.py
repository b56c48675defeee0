"""What every benchmark shares: rounds in turns, intervals, targets, the report, and environments of other programs.

A benchmark runs its subjects in rounds. Each round runs every subject once, in an order that rotates, so that whatever
slows the machine slows all of them. A figure is the median over rounds, and two subjects are compared within a round.
Intervals are those of `edgekit.device.measure.intervals`, which the pipeline's own benchmark uses too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgekit.device.measure import bench, intervals

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
CONFIDENCE = 0.95
INSTALL_LIMIT_S = 1800

Item = TypeVar("Item")


class NotRun(Exception):
    """Something could not be measured; the message says why, and goes into the report."""


def parser(text: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """An argument parser whose description is the first line of a module's docstring."""
    return argparse.ArgumentParser(prog=program, description=(text or "").splitlines()[0])


def turns(items: Sequence[Item], rounds: int) -> Iterator[list[Item]]:
    """The order of each round. It rotates, because the first in a round pays for what ran before it."""
    for number in range(rounds):
        first = number % len(items) if items else 0
        yield [*items[first:], *items[:first]]


@dataclass(frozen=True)
class Interval:
    """The median over rounds with its interval; with fewer than ten rounds, the smallest and the largest value."""

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def is_interval(self) -> bool:
        """Whether there were enough rounds for an interval."""
        return self.rounds >= intervals.MIN_ROUNDS

    def text(self, form: str = "{:.3g}") -> str:
        """For a table: `112 (107 to 125)`."""
        low, high = form.format(self.low), form.format(self.high)
        return f"{form.format(self.middle)} ({low} to {high}{'' if self.is_interval else ', least and most'})"


def median(values: Sequence[float]) -> Interval:
    """The median of one value a round."""
    if len(values) < intervals.MIN_ROUNDS:
        return Interval(float(np.median(values)), float(min(values)), float(max(values)), len(values))
    found = intervals.p50_interval(np.asarray(values, float), len(values), CONFIDENCE)
    return Interval(found.p50_ms, found.low_ms, found.high_ms, len(values))


def quotient(values: Sequence[float], by: Sequence[float]) -> Interval:
    """The median over rounds of one value divided by the other of the same round."""
    if len(values) < intervals.MIN_ROUNDS:
        return median([value / other if other else math.inf for value, other in zip(values, by, strict=True)])
    found = intervals.ratio_interval(np.asarray(values, float), np.asarray(by, float), len(values), CONFIDENCE)
    return Interval(found.ratio, found.low, found.high, len(values))


def share(count: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, such as that of right answers."""
    from edgekit.search.model_files import accuracy_interval

    low, high = accuracy_interval(np.arange(of) < count, CONFIDENCE)
    return low, high


@dataclass(frozen=True)
class Target:
    """A bound that a figure should reach: at least that much, or at most."""

    what: str
    bound: float
    at_least: bool = True

    def verdict(self, found: Interval) -> str:
        """`reached`, `not reached`, or `undecided` where the bound lies within the interval."""
        low, high = (found.low, found.high) if self.at_least else (-found.high, -found.low)
        bound = self.bound if self.at_least else -self.bound
        return "reached" if low >= bound else "not reached" if high < bound else "undecided"

    def line(self, found: Interval, form: str = "{:.3g}") -> str:
        """The target, the figure and the verdict."""
        sign = ">=" if self.at_least else "<="
        return f"{self.what}: {found.text(form)}, target {sign} {self.bound:g}: {self.verdict(found)}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """A Markdown table. The columns numbered in `words` are aligned left, all others right."""
    rule = ["---" if place in words else "--:" for place in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


@dataclass
class Finding:
    """The result of one experiment: its table, verdicts on targets, what was not run, and the values of each round."""

    name: str
    title: str
    header: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rounds: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    load_before: float = 0.0

    def evaluate(self, target: Target, found: Interval, form: str = "{:.3g}") -> None:
        """Hold a figure against its target."""
        line = target.line(found, form)
        self.verdicts.append(
            {"target": asdict(target), "found": asdict(found), "verdict": target.verdict(found), "line": line}
        )

    def text(self) -> str:
        """This experiment's part of the report, in Markdown."""
        took = f"It took {self.seconds:.0f} s; the machine's load before it was {self.load_before:.1f}."
        parts = [f"## {self.name}: {self.title}\n\n{took}"]
        if self.rows:
            parts.append(markdown(self.header, self.rows))
        lines = [f"TARGET {each['line']}" for each in self.verdicts] + self.notes
        lines += [f"NOT RUN {each}" for each in self.missing]
        parts += ["\n".join(f"- {line}" for line in lines)] if lines else []
        return "\n\n".join(parts) + "\n"


def conditions() -> dict[str, Any]:
    """The machine that figures were taken on, and its load now."""
    return {**bench.machine_facts(), "load_before": os.getloadavg()[0]}


def write(folder: Path, facts: dict[str, Any], findings: Sequence[Finding]) -> str:
    """Write report.md and report.json into `folder`, and return the text."""
    head = ", ".join(f"{key} {value}" for key, value in facts.items())
    text = "\n".join([f"# {folder.name}\n\n{head}\n", *(each.text() for each in findings)])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(text)
    document = {"machine": facts, "experiments": [asdict(each) for each in findings]}
    (folder / "report.json").write_text(json.dumps(document, indent=1))
    return text


def timed(command: Sequence[str], cwd: Path = ROOT, **environment: str) -> float:
    """Run a command and return its seconds; SystemExit with its output if it fails."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def python_of(folder: Path, packages: Sequence[str], *, first: Sequence[str] = (), alone: Sequence[str] = ()) -> Path:
    """The Python of a virtual environment that holds exactly these packages and their requirements, made on demand.

    Parameters
    ----------
    folder
        Where the environment is. One with the same packages is used again.
    packages
        Requirements for pip.
    first
        Requirements that are installed before `packages`, so that pip does not choose other builds of them.
    alone
        Requirements that are installed last and without their own, because those are pinned to other versions.

    Raises
    ------
    NotRun
        The environment could not be made.
    """
    python, made = folder / "bin" / "python", folder / ".made"
    requirements = "\n".join([*first, *packages, *alone])
    if made.is_file() and made.read_text() == requirements:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = [[*pip, *some] for some in (first, packages, ["--no-deps", *alone] if alone else []) if some]
    for command in [[sys.executable, "-m", "venv", str(folder)], *steps]:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{folder.name}: {' '.join(command)} took longer than {INSTALL_LIMIT_S} s") from None
        if done.returncode:
            reason = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])
            raise NotRun(f"{folder.name}: {' '.join(command)} ended with exit code {done.returncode}: {reason}")
    made.write_text(requirements)
    return python
