"""Answers as the runner gives them, for the tests of rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgekit.device.live.rules import Rules
from edgekit.device.live.types import Answer, Event
from edgekit.runner.postprocess.detection import DetectedBox, Detection

LABELS = ["person", "car"]
SIZE = (640, 480)
START_S = 1_700_000_000.1
Box = tuple[str, float, tuple[float, float, float, float]]


def answer(content: Any, number: int = 0, time_s: float | None = None, source: str = "door") -> Answer:
    """An answer of 10 frames a second."""
    at_s = START_S + number / 10 if time_s is None else time_s
    return Answer(source, number, at_s, SIZE, content)


def boxes(*result: Box) -> dict[str, Any]:
    return Detection([DetectedBox(*each) for each in result], {"run": 1.0}).to_dict()


def person(score: float = 0.9, x: float = 300.0, y: float = 400.0, label: str = "person") -> Box:
    """A box of 40x100 pixels, by the middle of its lower side."""
    return label, score, (x - 20, y - 100, x + 20, y)


def detector(name: str = "rule", **options: Any) -> Rules:
    return Rules.from_config({name: options}, LABELS, "detection", SIZE)


def events(rules: Rules, contents: Iterable[Any], step_s: float = 0.1) -> list[Event]:
    """The events of a stream of answers."""
    stream = enumerate(contents)
    return [event for number, each in stream for event in rules.update(answer(each, number, START_S + number * step_s))]


def changes(result: Sequence[Event]) -> list[tuple[int, str]]:
    """Frame and kind of each event."""
    return [(each.frame, each.kind) for each in result]
