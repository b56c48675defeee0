"""JSON that a device answers with: the values that are wanted, of their kind and size, or DeviceError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.fleet.devices import words
from edgekit.fleet.devices.failures import DeviceError
from edgekit.runner.errors import bounded_recursion

LARGEST = 2**53
NONSENSE = 8
"""Exit code for an answer that no runner gives: the device, or what stands between, is not what it says."""


def parse_object(line: str) -> dict[str, Any]:
    """The object in a line of JSON."""
    try:
        with bounded_recursion():
            found = json.loads(line)
    except (ValueError, RecursionError):
        raise DeviceError("answers with what is no JSON; look at that device", NONSENSE) from None
    if not isinstance(found, dict):
        raise DeviceError("answers with JSON of another shape; look at that device", NONSENSE)
    return found


def text(values: Mapping[str, Any], key: str, most: int = words.LONGEST) -> str:
    """A text, in one line that a terminal can show."""
    found = values.get(key)
    if not isinstance(found, str):
        raise DeviceError(f"does not say its {key}", NONSENSE)
    return words.plain(found, most)


def texts(values: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a list; empty where there is none."""
    found = values.get(key)
    return [words.plain(each, 1000) for each in found if isinstance(each, str)] if isinstance(found, list) else []


def whole(values: Mapping[str, Any], key: str) -> int:
    """A whole number from 0."""
    found = values.get(key)
    if not is_whole(found):
        raise DeviceError(f"says that its {key} is {words.plain(found, 40)!r}", NONSENSE)
    return int(found)  # type: ignore[arg-type]


def is_whole(value: Any) -> bool:
    """Whether it is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def number(value: Any) -> float | None:
    """A finite number from 0; None for anything else."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LARGEST
    return float(value) if fits else None
