"""What `edgerun bench` and `edgerun doctor` of a device said, checked for its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.fleet.devices import device_json, shell_text
from edgekit.fleet.devices.connection import CommandResult
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.device_json import MALFORMED_ANSWER

FIGURES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms")
MOST = 100


@dataclass(frozen=True)
class DeviceTiming:
    """What `edgerun bench --json` measured of the model alone: `figures` in ms, by name; `why` it was disturbed."""

    interpreter: str
    comparable: bool
    why: tuple[str, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True)
class DeviceFinding:
    """What `edgerun doctor --json` found; `severity`: error or warning."""

    code: str
    severity: str
    cause: str
    fix: str

    def record(self) -> dict[str, str]:
        """As JSON."""
        return {"code": self.code, "severity": self.severity, "cause": self.cause, "fix": self.fix}


def parse_timing(answer: CommandResult) -> DeviceTiming:
    """Of `edgerun bench --json`; DeviceError where there are no times in it."""
    values = device_json.parse_object(_line(answer))
    times = values.get("execute")
    found = {name: device_json.as_number(times.get(name)) for name in FIGURES} if isinstance(times, dict) else {}
    figures = {name: figure for name, figure in found.items() if figure is not None}
    if len(figures) < len(FIGURES):
        raise DeviceError("timed the model, and does not say how long it took", MALFORMED_ANSWER)
    why = tuple(device_json.get_texts(values, "why")[:MOST])
    return DeviceTiming(device_json.get_text(values, "interpreter", 40), values.get("comparable") is True, why, figures)


def parse_findings(answer: CommandResult) -> list[DeviceFinding]:
    """Of `edgerun doctor --json`."""
    found = device_json.parse_object(_line(answer)).get("findings")
    if not isinstance(found, list):
        raise DeviceError("does not list what the doctor found", MALFORMED_ANSWER)
    return [_finding(each) for each in found[:MOST]]


def _finding(values: Any) -> DeviceFinding:
    if not isinstance(values, dict):
        raise DeviceError("lists a finding that is none", MALFORMED_ANSWER)
    return DeviceFinding(*(device_json.get_text(values, key) for key in ("code", "severity", "cause", "fix")))


def _line(answer: CommandResult) -> str:
    """The last line of JSON, whatever a login has printed before it."""
    lines = [line for line in answer.out.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError(
            f"answers with no JSON ({shell_text.last_line(answer.said) or 'it said nothing'})", MALFORMED_ANSWER
        )
    return lines[-1]
