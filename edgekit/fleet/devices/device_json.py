"""Read values from the JSON of a device. DeviceError is raised if one is missing or has the wrong type or size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.fleet.devices import shell_text
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.runner.errors import bounded_recursion

LARGEST = 2**53
MALFORMED_ANSWER = 8
"""Exit code for an answer that no runner gives: the device, or something in between, is not what it claims to be."""


def parse_object(line: str) -> dict[str, Any]:
    """Parse a line with a JSON object."""
    try:
        with bounded_recursion():
            value = json.loads(line)
    except (ValueError, RecursionError):
        raise DeviceError("did not answer with JSON; check that device", MALFORMED_ANSWER) from None
    if not isinstance(value, dict):
        raise DeviceError("answered with JSON of an unexpected form; check that device", MALFORMED_ANSWER)
    return value


def get_text(values: Mapping[str, Any], key: str, most: int = shell_text.LONGEST) -> str:
    """Return a text as one line that is safe to print."""
    value = values.get(key)
    if not isinstance(value, str):
        raise DeviceError(f"did not report its {key}", MALFORMED_ANSWER)
    return shell_text.printable(value, most)


def get_texts(values: Mapping[str, Any], key: str) -> list[str]:
    """Return the texts of a list; empty if there is none."""
    value = values.get(key)
    return (
        [shell_text.printable(each, 1000) for each in value if isinstance(each, str)] if isinstance(value, list) else []
    )


def get_count(values: Mapping[str, Any], key: str) -> int:
    """Return a non-negative whole number."""
    value = values.get(key)
    if not is_count(value):
        raise DeviceError(f"reported an invalid {key}: {shell_text.printable(value, 40)!r}", MALFORMED_ANSWER)
    return int(value)  # type: ignore[arg-type]


def is_count(value: Any) -> bool:
    """Return whether a value is a non-negative whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def as_number(value: Any) -> float | None:
    """Return a finite non-negative number, or None for anything else."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LARGEST
    return float(value) if fits else None
