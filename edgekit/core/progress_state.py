"""How far something is, in words and as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

MIN_TEXT_LENGTH = 40
"""Letters of a text that is not cut any further to fit into a record."""


@dataclass(frozen=True)
class StepState:
    """A step as it stands: `done` of `of` units; `of` 0: nobody knows how many.

    A unit in the singular counts the one under way ("epoch 4 of 40"), in the plural what is done ("10 of 64 samples").
    """

    name: str
    unit: str = ""
    done: float = 0.0
    of: int = 0
    best: str = ""

    def __str__(self) -> str:
        parts = [self.name, self._count(), f"best {self.best}" if self.best else ""]
        return " · ".join(filter(None, parts))

    def _count(self) -> str:
        if not self.unit:
            return ""
        amount = self.unit.endswith("s")
        if amount and not self.of and not self.done:
            return ""
        number = int(self.done) if amount else int(self.done) + 1
        if not self.of:
            return f"{number:,} {self.unit}" if amount else f"{self.unit} {number:,}"
        number = min(number, self.of)
        return f"{number:,} of {self.of:,} {self.unit}" if amount else f"{self.unit} {number:,} of {self.of:,}"


@dataclass(frozen=True)
class ProgressState:
    """What goes on: steps, the outermost first, the seconds left of them, and sentences said, numbered from 1."""

    process: int
    steps: tuple[StepState, ...] = ()
    left_s: float | None = None
    said: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        left = "" if self.left_s is None else f"about {duration(self.left_s)} left"
        return " · ".join(filter(None, [*map(str, self.steps), left]))

    def fitted(self, most: int) -> str:
        """The same in at most so many letters, if it can be: without the best so far, the time left or outer steps."""
        named = [place for place, step in enumerate(self.steps) if step.name]
        inner = replace(self, steps=self.steps[named[-1] :] if named else self.steps)
        states = [state for each in (self, inner) for state in (each, each._without_best(), each._bare())]
        return next((text for text in map(str, states) if len(text) <= most), str(states[-1]))

    def _without_best(self) -> ProgressState:
        return replace(self, steps=tuple(replace(step, best="") for step in self.steps))

    def _bare(self) -> ProgressState:
        return replace(self._without_best(), left_s=None)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def record(self, most: int) -> bytes:
        """As JSON, in at most so many bytes: sentences said long ago are left out first, then long texts are cut."""
        state = self
        while len(data := state.to_json().encode()) > most and (state.said or state.steps):
            state = state._shorter()
        return data

    def _shorter(self) -> ProgressState:
        if len(self.said) > 1:
            return replace(self, said=self.said[1:])
        texts = [*(text for _, text in self.said), *(text for one in self.steps for text in (one.name, one.best))]
        most = max(map(len, texts)) // 2
        if most < MIN_TEXT_LENGTH:
            return replace(self, said=(), steps=self.steps[:-1])
        steps = tuple(replace(one, name=_cut(one.name, most), best=_cut(one.best, most)) for one in self.steps)
        return replace(self, said=tuple((number, _cut(text, most)) for number, text in self.said), steps=steps)

    @classmethod
    def from_json(cls, text: str) -> ProgressState:
        """ValueError, KeyError or TypeError where it is none."""
        found = json.loads(text)
        steps = tuple(StepState(**step) for step in found["steps"])
        return cls(found["process"], steps, found["left_s"], tuple((int(n), str(t)) for n, t in found["said"]))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def elapsed(seconds: float) -> str:
    """`1:05`: minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `1 h 20 min`: as exact as an estimate deserves."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
