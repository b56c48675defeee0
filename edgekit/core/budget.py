"""The budget: limits of accuracy, latency and size, absolute or beside a reference, for all targets or for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_serializer, model_validator

from edgekit.core.strict import StrictModel, Target

LIMIT_PAIRS = (("latency_p50_ms", "latency_p50"), ("size_bytes", "size"))
"""An absolute limit and the relative one in its place."""


class RelativeLimit(StrictModel):
    """A limit as a share of what a reference needs."""

    ratio: float = Field(gt=0, le=1000, description="largest share of what the reference needs, such as 0.6")
    of: str = Field(
        min_length=1,
        description="reference: file name of one of benchmark.rivals, or baseline, its float file on the same target",
    )

    @model_validator(mode="after")
    def _baseline_is_not_known(self) -> Self:
        """The float file of the baseline is made by the run, so nothing is known of it before."""
        known = [name for name in ("sha256", "bytes") if getattr(self, name, None) is not None]
        if self.of == BASELINE and known:
            raise ValueError(f"{known[0]}: got {getattr(self, known[0])}, and {BASELINE} is no file yet; leave it out")
        return self

    @model_serializer(mode="wrap")
    def _without_unknown(self, plain: Any) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


class RelativeLatencyLimit(RelativeLimit):
    """A limit of the p50, beside that of a reference in the same rounds."""

    sha256: str | None = Field(None, description="SHA-256 of a rival; filled in, and refused where it is another")
    _file: dict[str, Any] | None = PrivateAttr(None)

    @property
    def file(self) -> dict[str, Any]:
        """The rival as benchmark.rivals names it, with an absolute path."""
        assert self._file is not None, f"{self.of} was not looked up"
        return self._file


class RelativeSizeLimit(RelativeLimit):
    """A limit of the bytes, beside those of a reference."""

    bytes: int | None = Field(None, gt=0, description="bytes of a rival; filled in, and refused where they are others")


class TargetBudget(StrictModel):
    """Limits of one target, each in place of the budget's own; null: no limit."""

    latency_p50_ms: float | None = Field(None, gt=0, description="largest median latency of one call, milliseconds")
    size_bytes: int | None = Field(None, gt=0, description="largest size of the model's files, bytes")
    latency_p50: RelativeLatencyLimit | None = Field(None, description="largest p50 of one call, beside a reference's")
    size: RelativeSizeLimit | None = Field(None, description="largest size of the model's files, beside a reference's")

    @model_validator(mode="before")
    @classmethod
    def _goals(cls, given: Any) -> Any:
        return _translated(given, ("latency_p50", "size"))

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        _check_one_of_each(self)
        return self

    @model_serializer(mode="wrap")
    def _as_said(self, plain: Any) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name in self.model_fields_set}


class Budget(StrictModel):
    """The limits a variant must meet, on the validation split and on this machine.

    The drop is that of all samples like those of the split. So the upper end of its one-sided interval is compared with
    the limit (`accuracy_drop`). At even odds that would be the drop of the split itself: a claim of nothing. A latency
    breaks its limit where its whole interval is above; beside a reference that is the interval of the ratio of both
    p50s. `goals` in Olive's words become limits when the config is read (`translated`).
    """

    accuracy_drop_pp: float = Field(
        1.0, ge=0, le=100, description="largest drop of accuracy below the baseline, percentage points"
    )
    accuracy_confidence: float = Field(
        0.95, gt=0.5, lt=1, description="confidence that the drop on unseen samples is no larger"
    )
    latency_p50_ms: float | None = Field(None, gt=0, description="largest median latency of one call, milliseconds")
    size_bytes: int | None = Field(None, gt=0, description="largest size of the model's files, bytes")
    latency_p50: RelativeLatencyLimit | None = Field(None, description="largest p50 of one call, beside a reference's")
    size: RelativeSizeLimit | None = Field(None, description="largest size of the model's files, beside a reference's")
    targets: dict[Target, TargetBudget] = Field(
        default_factory=dict, description="limits of single targets, in place of those of latency and size above"
    )

    @model_validator(mode="before")
    @classmethod
    def _goals(cls, given: Any) -> Any:
        return _translated(given)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        _check_one_of_each(self)
        return self

    @model_serializer(mode="wrap")
    def _without_unused(self, plain: Any) -> dict[str, Any]:
        """Without relative limits and limits of targets where there are none, so that a record shows what was set."""
        values: dict[str, Any] = plain(self)
        return {
            name: value for name, value in values.items() if value or name not in ("latency_p50", "size", "targets")
        }

    @property
    def is_plain(self) -> bool:
        """Whether two numbers say it all: no reference, and no target of its own."""
        return self.latency_p50 is None and self.size is None and not self.targets

    def limits(self, target: str) -> VariantLimits:
        """What the files of a target are held to."""
        own = self.targets.get(target)  # type: ignore[call-overload]
        latency, size = (own if own and own.model_fields_set & set(pair) else self for pair in LIMIT_PAIRS)
        return VariantLimits(latency.latency_p50_ms, latency.latency_p50, size.size_bytes, size.size)

    def for_target(self, target: str) -> Budget:
        """The budget that says of one target what this one does."""
        if self.is_plain:
            return self
        accuracy = {"accuracy_drop_pp": self.accuracy_drop_pp, "accuracy_confidence": self.accuracy_confidence}
        return Budget.model_validate({**accuracy, **vars(self.limits(target))})

    def relative_limits(self) -> Iterator[tuple[str, RelativeLimit]]:
        """Every relative limit with its place in the config."""
        places: list[tuple[str, Budget | TargetBudget]] = [("budget", self)]
        places += [(f"budget.targets.{target}", limits) for target, limits in self.targets.items()]
        for place, limits in places:
            for name in ("latency_p50", "size"):
                if (found := getattr(limits, name)) is not None:
                    yield f"{place}.{name}", found

    def latency_references(self, targets: Sequence[str]) -> dict[str, RelativeLatencyLimit]:
        """What is timed beside the files of these targets: a limit that names each, by the reference's name."""
        found = [limits.latency_p50 for limits in map(self.limits, targets)]
        return {each.of: each for each in found if each is not None}

    def needs_baseline(self, targets: Sequence[str]) -> bool:
        """Whether the baseline's float files are needed for what holds for these targets."""
        return any(
            relative is not None and relative.of == BASELINE
            for limits in map(self.limits, targets)
            for relative in (limits.latency_p50, limits.size)
        )

    def with_reference_models(self, rivals: Mapping[str, ReferenceModel]) -> Budget:
        """With what is known of the rivals filled in; ValueError where something else was given, with its place."""
        values = self.model_dump()
        places = {"": values, **{f"targets.{target}.": own for target, own in values.get("targets", {}).items()}}
        for place, limits in places.items():
            for name, key in (("latency_p50", "sha256"), ("size", "bytes")):
                relative = limits.get(name)
                if relative and relative["of"] in rivals:
                    found = getattr(rivals[relative["of"]], key)
                    if relative.setdefault(key, found) != found:
                        raise ValueError(
                            f"{place}{name}.{key}: got {relative[key]}, and {relative['of']} has {found}; leave it out"
                        )
        filled = Budget.model_validate(values)
        for _, each in filled.relative_limits():
            if isinstance(each, RelativeLatencyLimit) and each.of in rivals:
                each._file = rivals[each.of].file
        return filled

    def describe_limits(
        self, targets: Sequence[str], latency: str = "p50 at most {}", size: str = "at most {}"
    ) -> list[str]:
        """Each limit of latency and size; where targets differ, with the target before it."""
        of = {target: self.limits(target) for target in targets}
        differ = len({(each.latency_text(), each.size_text()) for each in of.values()}) > 1
        found = []
        for target, limits in of.items():
            each = [latency.format(limits.latency_text())] if limits.has_latency_limit else []
            each += [size.format(limits.size_text())] if limits.size_text() else []
            found += [f"{target}: {', '.join(each) or 'any'}"] if differ else each
        return list(dict.fromkeys(found))

    def without_latency(self) -> Budget:
        """The same without any limit of latency."""
        values = self.model_dump(exclude={"latency_p50"}) | {"latency_p50_ms": None}
        own = {
            target: {name: limit for name, limit in limits.items() if name not in LIMIT_PAIRS[0]}
            for target, limits in values.pop("targets", {}).items()
        }
        return Budget.model_validate(values | ({"targets": own} if any(own.values()) else {}))


@dataclass(frozen=True)
class ReferenceModel:
    """A file that a relative limit may name: `file` as benchmark.rivals names it, with an absolute path."""

    file: dict[str, Any]
    sha256: str
    bytes: int


@dataclass(frozen=True)
class VariantLimits:
    """Limits of latency and size that hold for one target; of each pair at most one is there."""

    latency_p50_ms: float | None
    latency_p50: RelativeLatencyLimit | None
    size_bytes: int | None
    size: RelativeSizeLimit | None

    @property
    def has_latency_limit(self) -> bool:
        """Whether there is one."""
        return self.latency_p50_ms is not None or self.latency_p50 is not None

    def exceeds_latency(self, low_ms: float, ratio_low: Callable[[str], float]) -> bool:
        """Whether a p50 is over its limit for sure.

        `low_ms` is the lower end of its interval, `ratio_low(of)` that of its ratio to a reference.
        """
        if self.latency_p50 is not None:
            return ratio_low(self.latency_p50.of) > self.latency_p50.ratio
        return self.latency_p50_ms is not None and low_ms > self.latency_p50_ms

    def max_bytes(self, baseline_bytes: int | None = None) -> int | None:
        """The largest size, of a relative one at least a byte; None without, and beside a baseline of unknown bytes."""
        if self.size is None:
            return self.size_bytes
        of = baseline_bytes if self.size.of == BASELINE else self.size.bytes
        return None if of is None else max(1, int(self.size.ratio * of + 1e-9))

    def latency_text(self) -> str:
        """`0.052 ms`, or `0.6 of theirs.tflite's p50`; empty without a limit."""
        if self.latency_p50 is not None:
            return f"{self.latency_p50.ratio:g} of {_whose(self.latency_p50.of)} p50"
        return "" if self.latency_p50_ms is None else f"{self.latency_p50_ms:g} ms"

    def size_text(self, baseline_bytes: int | None = None, unit: str = " bytes") -> str:
        """`59,000 bytes`, or `59,097 bytes (0.6 of theirs.tflite)`; empty without a limit."""
        most = self.max_bytes(baseline_bytes)
        if self.size is None:
            return "" if most is None else f"{most:,}{unit}"
        beside = f"{self.size.ratio:g} of {'the float baseline' if self.size.of == BASELINE else self.size.of}"
        return beside if most is None else f"{most:,}{unit} ({beside})"


def _whose(of: str) -> str:
    return "the float baseline's" if of == BASELINE else f"{of}'s"


def _translated(given: Any, allowed: tuple[str, ...] = ("accuracy", "latency_p50", "size")) -> Any:
    return limits_from_goals(given, allowed) if isinstance(given, dict) and "goals" in given else given


def _check_one_of_each(limits: Budget | TargetBudget) -> None:
    for absolute, relative in LIMIT_PAIRS:
        if getattr(limits, absolute) is not None and getattr(limits, relative) is not None:
            raise ValueError(f"{absolute} and {relative}: both are given; leave one of them out, or set it to null")


GOAL_TYPES = ("threshold", "max-degradation", "min-improvement", "percent-max-degradation", "percent-min-improvement")
BASELINE = "baseline"
MAX_GOAL_VALUE = 1e15
"""Largest value of a goal: a petabyte, or thirty thousand years."""


def limits_from_goals(values: Mapping[str, Any], allowed: tuple[str, ...] = ("accuracy", "latency_p50", "size")) -> Any:
    """`values` of a budget with its `goals` as limits; ValueError for a goal that is none of these limits."""
    goals = values.get("goals")
    found = {name: value for name, value in values.items() if name != "goals"}
    if not isinstance(goals, dict):
        raise ValueError(f"goals: got {goals!r}; write goals: {{latency_p50: {{type: threshold, value: 5}}}}")
    for metric, goal in goals.items():
        if metric not in allowed:
            raise ValueError(f"goals.{metric}: no such metric here; use {', '.join(allowed)}")
        name, limit = GOAL_TRANSLATORS[metric](*_parts(f"goals.{metric}", goal))
        if twice := [each for each in CONFLICTING_LIMITS[metric] if each in values]:
            raise ValueError(f"goals.{metric} and {', '.join(twice)}: both limit the same; leave one of them out")
        found[name] = limit
    return found


def _parts(where: str, goal: Any) -> tuple[str, str, float]:
    if not isinstance(goal, dict) or set(goal) != {"type", "value"}:
        raise ValueError(f"{where}: got {goal!r}; write type and value, such as {{type: max-degradation, value: 0.01}}")
    kind, value = goal["type"], goal["value"]
    if kind not in GOAL_TYPES:
        raise ValueError(f"{where}.type: got {kind!r}; use {', '.join(GOAL_TYPES)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_GOAL_VALUE:
        raise ValueError(f"{where}.value: got {repr(value)[:40]}; write a number from 0 to {MAX_GOAL_VALUE:g}")
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


GOAL_TRANSLATORS: dict[str, Callable[[str, str, float], tuple[str, Any]]] = {
    "accuracy": _accuracy,
    "latency_p50": _latency,
    "size": _size,
}
CONFLICTING_LIMITS = {
    "accuracy": ("accuracy_drop_pp",),
    "latency_p50": ("latency_p50_ms", "latency_p50"),
    "size": ("size_bytes", "size"),
}
