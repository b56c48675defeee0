"""JSON that a device answers with: the values that are wanted, of their kind and size, or DeviceError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.fleet.devices import shell_text
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.runner.errors import bounded_recursion

LARGEST = 2**53
MALFORMED_ANSWER = 8
"""Exit code for an answer that no runner gives: the device, or what stands between, is not what it says."""


def parse_object(line: str) -> dict[str, Any]:
    """The object in a line of JSON."""
    try:
        with bounded_recursion():
            found = json.loads(line)
    except (ValueError, RecursionError):
        raise DeviceError("answers with what is no JSON; look at that device", MALFORMED_ANSWER) from None
    if not isinstance(found, dict):
        raise DeviceError("answers with JSON of another shape; look at that device", MALFORMED_ANSWER)
    return found


def get_text(values: Mapping[str, Any], key: str, most: int = shell_text.LONGEST) -> str:
    """A text, in one line that a terminal can show."""
    found = values.get(key)
    if not isinstance(found, str):
        raise DeviceError(f"does not say its {key}", MALFORMED_ANSWER)
    return shell_text.printable(found, most)


def get_texts(values: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a list; empty where there is none."""
    found = values.get(key)
    return (
        [shell_text.printable(each, 1000) for each in found if isinstance(each, str)] if isinstance(found, list) else []
    )


def get_count(values: Mapping[str, Any], key: str) -> int:
    """A whole number from 0."""
    found = values.get(key)
    if not is_count(found):
        raise DeviceError(f"says that its {key} is {shell_text.printable(found, 40)!r}", MALFORMED_ANSWER)
    return int(found)  # type: ignore[arg-type]


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def as_number(value: Any) -> float | None:
    """A finite number from 0; None for anything else."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LARGEST
    return float(value) if fits else None
