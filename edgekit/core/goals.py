"""Goals in Olive's vocabulary, translated into limits of a budget.

A goal is `{type, value}`, as `MetricGoal` of Olive's evaluator has it. Accuracy is a fraction there, and latency in
milliseconds. `max-degradation` and `min-improvement` count from the unmodified model, here the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

TYPES = ("threshold", "max-degradation", "min-improvement", "percent-max-degradation", "percent-min-improvement")
BASELINE = "baseline"
MOST = 1e15
"""Largest value of a goal: a petabyte, or thirty thousand years."""


def translated(values: Mapping[str, Any], allowed: tuple[str, ...] = ("accuracy", "latency_p50", "size")) -> Any:
    """`values` of a budget with its `goals` as limits; ValueError for a goal that is none of these limits."""
    goals = values.get("goals")
    found = {name: value for name, value in values.items() if name != "goals"}
    if not isinstance(goals, dict):
        raise ValueError(f"goals: got {goals!r}; write goals: {{latency_p50: {{type: threshold, value: 5}}}}")
    for metric, goal in goals.items():
        if metric not in allowed:
            raise ValueError(f"goals.{metric}: no such metric here; use {', '.join(allowed)}")
        name, limit = TRANSLATORS[metric](*_parts(f"goals.{metric}", goal))
        if twice := [each for each in BESIDE[metric] if each in values]:
            raise ValueError(f"goals.{metric} and {', '.join(twice)}: both limit the same; leave one of them out")
        found[name] = limit
    return found


def _parts(where: str, goal: Any) -> tuple[str, str, float]:
    if not isinstance(goal, dict) or set(goal) != {"type", "value"}:
        raise ValueError(f"{where}: got {goal!r}; write type and value, such as {{type: max-degradation, value: 0.01}}")
    kind, value = goal["type"], goal["value"]
    if kind not in TYPES:
        raise ValueError(f"{where}.type: got {kind!r}; use {', '.join(TYPES)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ValueError(f"{where}.value: got {repr(value)[:40]}; write a number from 0 to {MOST:g}")
    return where, kind, float(value)


def _accuracy(where: str, kind: str, value: float) -> tuple[str, Any]:
    if kind == "max-degradation" or (value == 0 and kind != "threshold"):
        if value > 1:
            raise ValueError(f"{where}: got {value:g}; Olive's accuracy is a fraction, so write 0.01 for one point")
        return "accuracy_drop_pp", round(100 * value, 9)
    why = "no limit asks a variant to be better than the baseline"
    if kind == "threshold":
        why = "a limit here is a drop below the baseline, and no accuracy by itself"
    if kind == "percent-max-degradation":
        why = "a share of the baseline's accuracy is not known before it is trained"
    raise ValueError(f"{where}: {kind} {value:g} has no counterpart, for {why}; use max-degradation with a fraction")


def _latency(where: str, kind: str, value: float) -> tuple[str, Any]:
    if kind == "threshold":
        return "latency_p50_ms", value
    return "latency_p50", _relative(where, kind, value, "milliseconds")


def _size(where: str, kind: str, value: float) -> tuple[str, Any]:
    if kind == "threshold":
        if value != int(value):
            raise ValueError(f"{where}.value: got {value:g}; a threshold of size is a whole number of bytes")
        return "size_bytes", int(value)
    return "size", _relative(where, kind, value, "bytes")


def _relative(where: str, kind: str, value: float, unit: str) -> dict[str, Any]:
    """Of the baseline; less is better for both metrics."""
    if not kind.startswith("percent-") and value:
        raise ValueError(
            f"{where}: {kind} of {value:g} {unit} has no counterpart, for a limit beside the baseline is a ratio; "
            f"use percent-{kind}, or threshold"
        )
    share = value / 100 if kind.endswith("degradation") else -value / 100
    if share <= -1:
        raise ValueError(f"{where}: got {value:g} % less; more than 99 % is no goal that a file can meet")
    return {"ratio": round(1 + share, 12), "of": BASELINE}


TRANSLATORS: dict[str, Callable[[str, str, float], tuple[str, Any]]] = {
    "accuracy": _accuracy,
    "latency_p50": _latency,
    "size": _size,
}
BESIDE = {
    "accuracy": ("accuracy_drop_pp",),
    "latency_p50": ("latency_p50_ms", "latency_p50"),
    "size": ("size_bytes", "size"),
}
