"""What `edgerun bench` and `edgerun doctor` of a device said, checked for its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.fleet.devices import shapes, words
from edgekit.fleet.devices.connection import Answer
from edgekit.fleet.devices.failures import DeviceError
from edgekit.fleet.devices.shapes import NONSENSE

FIGURES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms")
MOST = 100


@dataclass(frozen=True)
class Timed:
    """What `edgerun bench --json` measured of the model alone: `figures` in ms, by name; `why` it was disturbed."""

    interpreter: str
    comparable: bool
    why: tuple[str, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Finding:
    """What `edgerun doctor --json` found; `severity`: error or warning."""

    code: str
    severity: str
    cause: str
    fix: str

    def record(self) -> dict[str, str]:
        """As JSON."""
        return {"code": self.code, "severity": self.severity, "cause": self.cause, "fix": self.fix}


def timed(answer: Answer) -> Timed:
    """Of `edgerun bench --json`; DeviceError where there are no times in it."""
    values = shapes.parse_object(_line(answer))
    times = values.get("execute")
    found = {name: shapes.number(times.get(name)) for name in FIGURES} if isinstance(times, dict) else {}
    figures = {name: figure for name, figure in found.items() if figure is not None}
    if len(figures) < len(FIGURES):
        raise DeviceError("timed the model, and does not say how long it took", NONSENSE)
    why = tuple(shapes.texts(values, "why")[:MOST])
    return Timed(shapes.text(values, "interpreter", 40), values.get("comparable") is True, why, figures)


def findings(answer: Answer) -> list[Finding]:
    """Of `edgerun doctor --json`."""
    found = shapes.parse_object(_line(answer)).get("findings")
    if not isinstance(found, list):
        raise DeviceError("does not list what the doctor found", NONSENSE)
    return [_finding(each) for each in found[:MOST]]


def _finding(values: Any) -> Finding:
    if not isinstance(values, dict):
        raise DeviceError("lists a finding that is none", NONSENSE)
    return Finding(*(shapes.text(values, key) for key in ("code", "severity", "cause", "fix")))


def _line(answer: Answer) -> str:
    """The last line of JSON, whatever a login has printed before it."""
    lines = [line for line in answer.out.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError(f"answers with no JSON ({words.last_line(answer.said) or 'it said nothing'})", NONSENSE)
    return lines[-1]
