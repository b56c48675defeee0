"""The state of work in progress, as text and as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

MIN_TEXT_LENGTH = 40
"""If texts would have to be cut to less than this length to fit into a record, inner steps are left out instead."""


@dataclass(frozen=True)
class StepState:
    """A step: `done` of `of` units are done. If `of` is 0, the total is not known.

    A unit in the singular counts the current unit ("epoch 4 of 40"), a unit in the plural counts finished units ("10 of
    64 samples").
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
        is_plural = self.unit.endswith("s")
        if is_plural and not self.of and not self.done:
            return ""
        number = int(self.done) if is_plural else int(self.done) + 1
        if not self.of:
            return f"{number:,} {self.unit}" if is_plural else f"{self.unit} {number:,}"
        number = min(number, self.of)
        return f"{number:,} of {self.of:,} {self.unit}" if is_plural else f"{self.unit} {number:,} of {self.of:,}"


@dataclass(frozen=True)
class ProgressState:
    """The current steps, the outermost first, the seconds left, and the announced sentences, numbered from 1."""

    process: int
    steps: tuple[StepState, ...] = ()
    left_s: float | None = None
    said: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        left = "" if self.left_s is None else f"about {duration(self.left_s)} left"
        return " · ".join(filter(None, [*map(str, self.steps), left]))

    def fitted(self, max_length: int) -> str:
        """Return the state as text, shortened to at most `max_length` characters if that is possible.

        The best result is omitted first, then the time left, then outer steps.
        """
        named_indices = [index for index, step in enumerate(self.steps) if step.name]
        inner_state = replace(self, steps=self.steps[named_indices[-1] :] if named_indices else self.steps)
        states = [state for each in (self, inner_state) for state in (each, each._without_best(), each._bare())]
        return next((text for text in map(str, states) if len(text) <= max_length), str(states[-1]))

    def _without_best(self) -> ProgressState:
        return replace(self, steps=tuple(replace(step, best="") for step in self.steps))

    def _bare(self) -> ProgressState:
        return replace(self._without_best(), left_s=None)

    def to_json(self) -> str:
        """Return the state as one line of JSON."""
        return json.dumps(asdict(self))

    def record(self, max_bytes: int) -> bytes:
        """Return the state as JSON of at most `max_bytes` bytes.

        Old sentences are left out first. After that, long texts are cut.
        """
        state = self
        while len(data := state.to_json().encode()) > max_bytes and (state.said or state.steps):
            state = state._shorter()
        return data

    def _shorter(self) -> ProgressState:
        if len(self.said) > 1:
            return replace(self, said=self.said[1:])
        texts = [*(text for _, text in self.said), *(text for step in self.steps for text in (step.name, step.best))]
        max_length = max(map(len, texts)) // 2
        if max_length < MIN_TEXT_LENGTH:
            return replace(self, said=(), steps=self.steps[:-1])
        steps = tuple(
            replace(step, name=_cut(step.name, max_length), best=_cut(step.best, max_length)) for step in self.steps
        )
        return replace(self, said=tuple((number, _cut(text, max_length)) for number, text in self.said), steps=steps)

    @classmethod
    def from_json(cls, text: str) -> ProgressState:
        """Read a state from its JSON. Raises ValueError, KeyError or TypeError if the text is not a state."""
        fields = json.loads(text)
        steps = tuple(StepState(**step) for step in fields["steps"])
        return cls(fields["process"], steps, fields["left_s"], tuple((int(n), str(t)) for n, t in fields["said"]))


def _cut(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def elapsed(seconds: float) -> str:
    """Return minutes and seconds: `1:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def duration(seconds: float) -> str:
    """Return a rounded duration for an estimate: `45 s`, `3 min`, `1 h 20 min`."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
