"""Answers over time: what a bundle declares under `smoothing`, and the function that carries it out.

Only streams are smoothed, never single files. Windows that were dropped or refused do not count. What may be declared
is checked here without numpy; `methods.py` holds the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError
from edgekit.runner.rules import is_number, is_whole

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

Smoother = Callable[[Any], Any]
METHODS: dict[str, dict[str, type]] = {
    "majority": {"windows": int},
    "mean": {"windows": int},
    "hysteresis": {"enter": float, "leave": float},
}
"""Options of each method: whole numbers, or numbers."""
TASKS: dict[str, tuple[str, ...]] = {
    "majority": ("classification", "multi_label", "anomaly"),
    "mean": ("classification", "multi_label", "regression", "anomaly"),
    "hysteresis": ("classification", "multi_label", "anomaly"),
}
"""Tasks whose answers a method can smooth."""
KINDS = ("image", "audio", "window")
"""Kinds of samples that come as a stream: frames, sound, rows."""
MOST_WINDOWS = 1000


def check(value: Any, task: str) -> None:
    """InputError for what is no method with its options, or none for this task."""
    method = value.get("method") if isinstance(value, dict) else None
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f'smoothing: got {str(value)[:200]!r}; write {{"method": "majority", "windows": 5}}')
    if set(value) != {"method", *METHODS[method]}:
        raise InputError(f"smoothing {method}: has {sorted(set(value) - {'method'})}, needed {sorted(METHODS[method])}")
    if task not in TASKS[method]:
        raise InputError(f"smoothing: {method} does not fit the task {task}; it is for {', '.join(TASKS[method])}")
    if method == "hysteresis":
        _check_limits(value["enter"], value["leave"], task)
    elif not is_whole(value["windows"]) or not 1 <= value["windows"] <= MOST_WINDOWS:
        raise InputError(f"smoothing.windows: got {value['windows']!r}; use a whole number from 1 to {MOST_WINDOWS}")


def check_kind(kind: str) -> None:
    """InputError for a kind of raw sample that no stream is made of."""
    if kind not in KINDS:
        raise InputError(
            f"smoothing: it is for streams, and there are none of the kind {kind}, only of {', '.join(KINDS)}; leave "
            "it out"
        )


def _check_limits(enter: Any, leave: Any, task: str) -> None:
    for name, limit in (("enter", enter), ("leave", leave)):
        if not is_number(limit) or limit <= 0 or (limit > 1 and task != "anomaly"):
            most = "" if task == "anomaly" else " up to 1"
            raise InputError(f"smoothing.{name}: got {limit!r}; use a number above 0{most}")
    if leave > enter:
        raise InputError(f"smoothing.leave: got {leave!r}; use at most enter, {enter!r}")


def maker(manifest: Manifest) -> Smoother | None:
    """The function for a new stream, from the answer to a window to the answer at that time.

    Its answers are of the same kind, and the window's own stands beside them. None where the bundle declares no
    smoothing.
    """
    if manifest.smoothing is None:
        return None
    from edgekit.runner.smoothing import methods

    made: Smoother = getattr(methods, manifest.smoothing["method"])(manifest.smoothing, manifest)
    return made


def facts(smoothed: Any) -> dict[str, Any]:
    """A smoothed answer for JSON, without what the window's own answer says already."""
    found: dict[str, Any] = smoothed.to_dict()
    return {key: value for key, value in found.items() if key not in ("scores", "timing_ms")}
