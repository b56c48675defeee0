"""What the experiments found, as text and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.serving.figures import Interval, Target


@dataclass
class Finding:
    """Of one experiment: lines of its table, verdicts, what was not run, and each round's raw values."""

    name: str
    title: str
    table: list[list[str]] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rounds: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    load_before: float = 0.0

    def evaluate(self, target: Target, found: Interval, form: str = "{:.3g}") -> None:
        """A figure against its target."""
        self.verdicts.append(
            {"target": asdict(target), "found": asdict(found), "verdict": target.verdict(found),
             "line": target.line(found, form)}
        )  # fmt: skip

    def text(self) -> str:
        """Its part of the report."""
        lines = [
            f"== {self.name}: {self.title} ({self.seconds:.0f} s, machine's load before it {self.load_before:.1f})",
            *columns(self.table),
        ]
        lines += [f"TARGET {each['line']}" for each in self.verdicts]
        lines += self.notes
        lines += [f"NOT RUN {each}" for each in self.missing]
        return "\n".join(lines) + "\n"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, every column as wide as its widest cell."""
    if not rows:
        return []
    widths = [max(len(row[place]) for row in rows if place < len(row)) for place in range(max(map(len, rows)))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def machine() -> dict[str, Any]:
    """Where it was measured."""
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]  # fmt: skip
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def write(folder: Path, facts: dict[str, Any], findings: Sequence[Finding]) -> str:
    """report.txt and report.json; the text."""
    head = ", ".join(f"{key} {value}" for key, value in facts.items())
    text = "\n".join([f"edgekit serving: {head}\n", *(each.text() for each in findings)])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.txt").write_text(text)
    document = {"machine": facts, "experiments": [asdict(each) for each in findings]}
    (folder / "report.json").write_text(json.dumps(document, indent=1))
    return text
