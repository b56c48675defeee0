"""Shared parts of all benchmarks: rotating rounds, intervals, targets, reports and environments of other programs.

A benchmark runs its subjects in rounds. Each round runs every subject once, in an order that rotates, so that whatever
slows the machine slows all of them. A figure is the median over rounds, and two subjects are compared within a round.
The intervals are those of `edgekit.device.measure.intervals`, which the pipeline's own benchmark also uses.
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
    """Something could not be measured. The message says why and is part of the report."""


def parser(text: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """Return an argument parser whose description is the first line of a module's docstring."""
    return argparse.ArgumentParser(prog=program, description=(text or "").splitlines()[0])


def rotated_orders(items: Sequence[Item], rounds: int) -> Iterator[list[Item]]:
    """Yield the order of each round.

    It rotates, because whatever ran before a round slows the round's first subject.
    """
    for number in range(rounds):
        start = number % len(items) if items else 0
        yield [*items[start:], *items[:start]]


@dataclass(frozen=True)
class Interval:
    """The median over rounds with its interval.

    With fewer than ten rounds, the bounds are the smallest and the largest value.
    """

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def is_interval(self) -> bool:
        """Whether there were enough rounds for an interval."""
        return self.rounds >= intervals.MIN_ROUNDS

    def text(self, form: str = "{:.3g}") -> str:
        """Return text for a table: `112 (107 to 125)`."""
        low, high = form.format(self.low), form.format(self.high)
        return f"{form.format(self.middle)} ({low} to {high}{'' if self.is_interval else ', least and most'})"


def median(values: Sequence[float]) -> Interval:
    """Return the median of one value per round."""
    if len(values) < intervals.MIN_ROUNDS:
        return Interval(float(np.median(values)), float(min(values)), float(max(values)), len(values))
    interval = intervals.p50_interval(np.asarray(values, float), len(values), CONFIDENCE)
    return Interval(interval.p50_ms, interval.low_ms, interval.high_ms, len(values))


def median_ratio(values: Sequence[float], divisors: Sequence[float]) -> Interval:
    """Return the median over rounds of one value divided by the other of the same round."""
    if len(values) < intervals.MIN_ROUNDS:
        return median([value / other if other else math.inf for value, other in zip(values, divisors, strict=True)])
    interval = intervals.ratio_interval(np.asarray(values, float), np.asarray(divisors, float), len(values), CONFIDENCE)
    return Interval(interval.ratio, interval.low, interval.high, len(values))


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's interval of a share, for example of correct answers."""
    from edgekit.search.model_files import accuracy_interval

    low, high = accuracy_interval(np.arange(total) < count, CONFIDENCE)
    return low, high


@dataclass(frozen=True)
class Target:
    """A bound that a figure should reach, as a minimum or a maximum."""

    what: str
    bound: float
    at_least: bool = True

    def verdict(self, interval: Interval) -> str:
        """Return `reached`, `not reached`, or `undecided` if the bound lies within the interval."""
        low, high = (interval.low, interval.high) if self.at_least else (-interval.high, -interval.low)
        bound = self.bound if self.at_least else -self.bound
        return "reached" if low >= bound else "not reached" if high < bound else "undecided"

    def line(self, interval: Interval, form: str = "{:.3g}") -> str:
        """Return the target, the figure and the verdict as text."""
        sign = ">=" if self.at_least else "<="
        return f"{self.what}: {interval.text(form)}, target {sign} {self.bound:g}: {self.verdict(interval)}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """Return a Markdown table. The columns numbered in `text_columns` are aligned left, the others right."""
    rule = ["---" if column in text_columns else "--:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


@dataclass
class ExperimentResult:
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

    def evaluate(self, target: Target, interval: Interval, form: str = "{:.3g}") -> None:
        """Compare a figure with its target and record the verdict."""
        line = target.line(interval, form)
        self.verdicts.append(
            {"target": asdict(target), "found": asdict(interval), "verdict": target.verdict(interval), "line": line}
        )

    def text(self) -> str:
        """Return this experiment's part of the report in Markdown."""
        duration = f"It took {self.seconds:.0f} s; the machine's load before it was {self.load_before:.1f}."
        parts = [f"## {self.name}: {self.title}\n\n{duration}"]
        if self.rows:
            parts.append(markdown(self.header, self.rows))
        lines = [f"TARGET {item['line']}" for item in self.verdicts] + self.notes
        lines += [f"NOT RUN {item}" for item in self.missing]
        parts += ["\n".join(f"- {line}" for line in lines)] if lines else []
        return "\n\n".join(parts) + "\n"


def machine_conditions() -> dict[str, Any]:
    """Return facts about the machine and its current load."""
    return {**bench.machine_facts(), "load_before": os.getloadavg()[0]}


def write_report(folder: Path, facts: dict[str, Any], results: Sequence[ExperimentResult]) -> str:
    """Write report.md and report.json into `folder` and return the text."""
    facts_line = ", ".join(f"{key} {value}" for key, value in facts.items())
    text = "\n".join([f"# {folder.name}\n\n{facts_line}\n", *(result.text() for result in results)])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(text)
    document = {"machine": facts, "experiments": [asdict(result) for result in results]}
    (folder / "report.json").write_text(json.dumps(document, indent=1))
    return text


def run_timed(command: Sequence[str], cwd: Path = ROOT, **environment: str) -> float:
    """Run a command and return its seconds.

    Raises
    ------
    SystemExit
        The command failed. The message contains its output.
    """
    started = time.perf_counter()
    process = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{process.stdout}{process.stderr}")
    return time.perf_counter() - started


def environment_python(
    folder: Path, packages: Sequence[str], *, first: Sequence[str] = (), without_dependencies: Sequence[str] = ()
) -> Path:
    """Return the Python of a virtual environment with exactly these packages and their requirements, created on demand.

    Parameters
    ----------
    folder
        Folder of the environment. One with the same packages is used again.
    packages
        Requirements for pip.
    first
        Requirements that are installed before `packages`, so that pip does not choose other builds of them.
    without_dependencies
        Requirements that are installed last, without their own requirements, because these are pinned to other
        versions.

    Raises
    ------
    NotRun
        The environment could not be created.
    """
    python, marker = folder / "bin" / "python", folder / ".made"
    requirements = "\n".join([*first, *packages, *without_dependencies])
    if marker.is_file() and marker.read_text() == requirements:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = [
        [*pip, *requirements_of_step]
        for requirements_of_step in (
            first,
            packages,
            ["--no-deps", *without_dependencies] if without_dependencies else [],
        )
        if requirements_of_step
    ]
    for command in [[sys.executable, "-m", "venv", str(folder)], *steps]:
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{folder.name}: {' '.join(command)} took longer than {INSTALL_LIMIT_S} s") from None
        if process.returncode:
            reason = " ".join((process.stderr.strip() or process.stdout.strip()).splitlines()[-1:])
            raise NotRun(f"{folder.name}: {' '.join(command)} ended with exit code {process.returncode}: {reason}")
    marker.write_text(requirements)
    return python
