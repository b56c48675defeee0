"""The objectives of a study: their names, how they are shown, and how values are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.core.schema.study import ObjectiveRow
from edgekit.report.formatting import kilobytes, milliseconds, percent

OBJECTIVE_NAMES = ("accuracy", "p50_ms", "bytes")
BEST_WORDS = {"accuracy": "most accurate", "p50_ms": "fastest", "bytes": "smallest"}


@dataclass(frozen=True)
class StudyObjective:
    """One objective. `place` is its index in a trial's `values`; `alone` means that no other objective has its name."""

    place: int
    name: str
    target: str | None
    maximize: bool
    alone: bool = True

    @property
    def title(self) -> str:
        """For example `accuracy`, `p50 on tflite` or `size for tflite`."""
        if self.name == "accuracy":
            return "accuracy"
        return f"p50 on {self.target}" if self.name == "p50_ms" else f"size for {self.target}"

    @property
    def unit(self) -> str:
        """The unit of the numbers that `scaled` returns."""
        return {"accuracy": "%", "p50_ms": "ms", "bytes": "kB"}[self.name]

    @property
    def heading(self) -> str:
        """The heading of an axis or column, for example `p50 on tflite, ms`."""
        return f"{self.title}, {self.unit}"

    @property
    def best(self) -> str:
        """For example `fastest`, or `fastest on tflite` if there is another target."""
        where = "" if self.alone else f" {'on' if self.name == 'p50_ms' else 'for'} {self.target}"
        return BEST_WORDS[self.name] + where

    def scaled(self, value: float) -> float:
        """Convert a value to the unit of axes: a fraction to per cent, bytes to kB."""
        return value * {"accuracy": 100.0, "p50_ms": 1.0, "bytes": 1e-3}[self.name]

    def number(self, value: float | None) -> str:
        """Return the value as text, without its unit."""
        if value is None:
            return "–"
        if self.name == "accuracy":
            return percent(value).removesuffix("\u00a0%")
        return milliseconds(value) if self.name == "p50_ms" else kilobytes(round(value))

    def shown(self, value: float | None, interval: Sequence[float] | None = None) -> str:
        """Return the value with its interval if there is one, for example `0.0214 ms (0.0209–0.0221)`."""
        if value is None:
            return "–"
        text = f"{self.number(value)}\u00a0{self.unit}"
        if interval is None or interval[0] == interval[1]:
            return text
        return f"{text} ({self.number(interval[0])}–{self.number(interval[1])})"

    def better(self, one: float, other: float) -> bool:
        """Return whether the first value is strictly better."""
        return one > other if self.maximize else one < other

    def surely_better(self, one: Sequence[float] | None, other: Sequence[float] | None) -> bool:
        """Return whether the first value is significantly better: its whole interval is better than the other's."""
        if one is None or other is None:
            return False
        return self.better(one[0], other[1]) if self.maximize else self.better(one[1], other[0])


def read_objectives(rows: Sequence[ObjectiveRow]) -> list[StudyObjective]:
    """Return the objectives in the order of the study."""
    names = [row["name"] for row in rows]
    return [
        StudyObjective(place, row["name"], row["target"], row["direction"] == "maximize", names.count(row["name"]) == 1)
        for place, row in enumerate(rows)
    ]


def dominates(one: Sequence[float], other: Sequence[float], objectives: Sequence[StudyObjective]) -> bool:
    """Return whether `one` is better than `other` in some objective and worse in none."""
    pairs = [(one[each.place], other[each.place], each) for each in objectives]
    return not any(each.better(b, a) for a, b, each in pairs) and any(each.better(a, b) for a, b, each in pairs)
