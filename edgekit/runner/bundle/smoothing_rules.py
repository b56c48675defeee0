"""Rules for `smoothing` in a manifest, checked without NumPy. `runner/smoothing.py` executes it."""

from __future__ import annotations

from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.rules import is_integer, is_number

METHODS: dict[str, dict[str, type]] = {
    "majority": {"windows": int},
    "mean": {"windows": int},
    "hysteresis": {"enter": float, "leave": float},
}
"""Options of each method, which are whole numbers or floats."""
TASKS: dict[str, tuple[str, ...]] = {
    "majority": ("classification", "multi_label", "anomaly"),
    "mean": ("classification", "multi_label", "regression", "anomaly"),
    "hysteresis": ("classification", "multi_label", "anomaly"),
}
"""Tasks whose answers a method can smooth."""
KINDS = ("image", "audio", "window")
"""Kinds of samples that can come as a stream: frames, sound, rows."""
MOST_WINDOWS = 1000


def check_smoothing(value: Any, task: str) -> None:
    """Raise InputError unless the value is a method with its options that fits the task."""
    method = value.get("method") if isinstance(value, dict) else None
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f'smoothing: got {str(value)[:200]!r}; write {{"method": "majority", "windows": 5}}')
    if set(value) != {"method", *METHODS[method]}:
        raise InputError(
            f"smoothing {method}: has the options {sorted(set(value) - {'method'})}, but needs "
            f"{sorted(METHODS[method])}"
        )
    if task not in TASKS[method]:
        raise InputError(f"smoothing: {method} does not fit the task {task}; use it for {', '.join(TASKS[method])}")
    if method == "hysteresis":
        _check_limits(value["enter"], value["leave"], task)
    elif not is_integer(value["windows"]) or not 1 <= value["windows"] <= MOST_WINDOWS:
        raise InputError(f"smoothing.windows: got {value['windows']!r}; use a whole number from 1 to {MOST_WINDOWS}")


def check_kind(kind: str) -> None:
    """Raise InputError for a kind of raw sample that cannot come as a stream."""
    if kind not in KINDS:
        raise InputError(
            f"smoothing: a sample of the kind {kind} cannot be part of a stream, only one of the kinds "
            f"{', '.join(KINDS)}; "
            "leave it out"
        )


def _check_limits(enter: Any, leave: Any, task: str) -> None:
    for name, limit in (("enter", enter), ("leave", leave)):
        if not is_number(limit) or limit <= 0 or (limit > 1 and task != "anomaly"):
            most = "" if task == "anomaly" else " up to 1"
            raise InputError(f"smoothing.{name}: got {limit!r}; use a number above 0{most}")
    if leave > enter:
        raise InputError(f"smoothing.leave: got {leave!r}; use at most enter, {enter!r}")
