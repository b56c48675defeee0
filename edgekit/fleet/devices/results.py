"""The output of `edgerun bench` and `edgerun doctor` of a device, checked for its structure."""

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
    """Latencies of the model alone, from `edgerun bench --json`: `figures` has percentiles in ms, by name.

    `why` lists the reasons if the result is not `comparable`.
    """

    interpreter: str
    comparable: bool
    why: tuple[str, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True)
class DeviceFinding:
    """A finding of `edgerun doctor --json`; `severity` is error or warning."""

    code: str
    severity: str
    cause: str
    fix: str

    def record(self) -> dict[str, str]:
        """Return the fields as a dictionary for JSON."""
        return {"code": self.code, "severity": self.severity, "cause": self.cause, "fix": self.fix}


def parse_timing(answer: CommandResult) -> DeviceTiming:
    """Parse `edgerun bench --json`. Raises DeviceError if there are no times in it."""
    values = device_json.parse_object(_line(answer))
    times = values.get("execute")
    values_ms = {name: device_json.as_number(times.get(name)) for name in FIGURES} if isinstance(times, dict) else {}
    figures = {name: figure for name, figure in values_ms.items() if figure is not None}
    if len(figures) < len(FIGURES):
        raise DeviceError("timed the model, but did not report how long it took", MALFORMED_ANSWER)
    why = tuple(device_json.get_texts(values, "why")[:MOST])
    return DeviceTiming(device_json.get_text(values, "interpreter", 40), values.get("comparable") is True, why, figures)


def parse_findings(answer: CommandResult) -> list[DeviceFinding]:
    """Parse `edgerun doctor --json`."""
    findings = device_json.parse_object(_line(answer)).get("findings")
    if not isinstance(findings, list):
        raise DeviceError("did not list what the doctor found", MALFORMED_ANSWER)
    return [_finding(each) for each in findings[:MOST]]


def _finding(values: Any) -> DeviceFinding:
    if not isinstance(values, dict):
        raise DeviceError("listed a finding that is not valid", MALFORMED_ANSWER)
    return DeviceFinding(*(device_json.get_text(values, key) for key in ("code", "severity", "cause", "fix")))


def _line(answer: CommandResult) -> str:
    """Return the last line of JSON. Anything that a login has printed before it is skipped."""
    lines = [line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError(
            f"did not answer with JSON ({shell_text.last_line(answer.stderr) or 'no output'})", MALFORMED_ANSWER
        )
    return lines[-1]
