"""The budget: limits on accuracy, latency and size, absolute or relative to a reference, for all targets or for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_serializer, model_validator

from edgekit.core.strict import StrictModel, Target

LIMIT_PAIRS = (("latency_p50_ms", "latency_p50"), ("size_bytes", "size"))
"""Each absolute limit and the relative limit that can replace it."""


class RelativeLimit(StrictModel):
    """A limit that is given as a fraction of the latency or size of a reference."""

    ratio: float = Field(gt=0, le=1000, description="largest fraction of what the reference needs, such as 0.6")
    of: str = Field(
        min_length=1,
        description="reference: file name of one of benchmark.rivals, or baseline: its float file on the same target",
    )

    @model_validator(mode="after")
    def _states_nothing_of_baseline(self) -> Self:
        """Refuse facts about the baseline, because its float file does not exist before the run."""
        stated = [name for name in ("sha256", "bytes") if getattr(self, name, None) is not None]
        if self.of == BASELINE and stated:
            raise ValueError(
                f"{stated[0]}: got {getattr(self, stated[0])}, but {BASELINE} is not a file yet; leave it out"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_unknown(self, plain: Any) -> dict[str, Any]:
        """Leave out fields whose values are not known."""
        return {name: value for name, value in plain(self).items() if value is not None}


class RelativeLatencyLimit(RelativeLimit):
    """A limit on p50 relative to that of a reference timed in the same rounds."""

    sha256: str | None = Field(
        None, description="SHA-256 of the reference model; edgekit fills it in, and refuses a file with another one"
    )
    _file: dict[str, Any] | None = PrivateAttr(None)

    @property
    def file(self) -> dict[str, Any]:
        """The entry of `benchmark.rivals` for the reference model, with an absolute path."""
        assert self._file is not None, f"the digest or size of {self.of} was not read"
        return self._file


class RelativeSizeLimit(RelativeLimit):
    """A limit on the size in bytes, relative to the size of a reference."""

    bytes: int | None = Field(
        None,
        gt=0,
        description="bytes of the reference model; edgekit fills them in, and refuses a file of another size",
    )


class TargetBudget(StrictModel):
    """Limits for one target. Each replaces the budget's own limit; null means no limit."""

    latency_p50_ms: float | None = Field(None, gt=0, description="largest median latency of one call, milliseconds")
    size_bytes: int | None = Field(None, gt=0, description="largest size of the model's files, bytes")
    latency_p50: RelativeLatencyLimit | None = Field(
        None, description="largest p50 of one call, relative to a reference"
    )
    size: RelativeSizeLimit | None = Field(None, description="largest size of the files, relative to a reference's")

    @model_validator(mode="before")
    @classmethod
    def _translate_goals(cls, values: Any) -> Any:
        return _translated(values, ("latency_p50", "size"))

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        _check_one_of_each(self)
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, plain: Any) -> dict[str, Any]:
        """Write only the fields that the config sets."""
        return {name: value for name, value in plain(self).items() if name in self.model_fields_set}


class Budget(StrictModel):
    """The limits that a variant must meet on the validation split and on this machine.

    The limit on the accuracy drop applies to all samples like those of the split, not only to the measured ones. So the
    upper bound of a one-sided confidence interval is compared with the limit (`accuracy_drop`). A latency breaks its
    limit if its whole confidence interval lies above the limit. For a relative limit, this is the interval of the ratio
    of the two p50s. `goals` in the notation of Olive are translated to limits when the config is read
    (`limits_from_goals`).
    """

    accuracy_drop_pp: float = Field(
        1.0, ge=0, le=100, description="largest drop of accuracy below the baseline, percentage points"
    )
    accuracy_confidence: float = Field(
        0.95, gt=0.5, lt=1, description="confidence that the drop on unseen samples is not larger than the limit"
    )
    latency_p50_ms: float | None = Field(None, gt=0, description="largest median latency of one call, milliseconds")
    size_bytes: int | None = Field(None, gt=0, description="largest size of the model's files, bytes")
    latency_p50: RelativeLatencyLimit | None = Field(
        None, description="largest p50 of one call, relative to a reference"
    )
    size: RelativeSizeLimit | None = Field(None, description="largest size of the files, relative to a reference's")
    targets: dict[Target, TargetBudget] = Field(
        default_factory=dict, description="limits on latency and size of single targets, which replace those above"
    )

    @model_validator(mode="before")
    @classmethod
    def _translate_goals(cls, values: Any) -> Any:
        return _translated(values)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        _check_one_of_each(self)
        return self

    @model_serializer(mode="wrap")
    def _without_unused(self, plain: Any) -> dict[str, Any]:
        """Leave out relative limits and target budgets that are not set, so that a record shows what was set."""
        values: dict[str, Any] = plain(self)
        return {
            name: value for name, value in values.items() if value or name not in ("latency_p50", "size", "targets")
        }

    @property
    def is_plain(self) -> bool:
        """Whether the budget consists of plain numbers, without relative limits and limits for single targets."""
        return self.latency_p50 is None and self.size is None and not self.targets

    def limits(self, target: str) -> VariantLimits:
        """Return the limits that hold for files of a target."""
        target_budget = self.targets.get(target)  # type: ignore[call-overload]
        latency, size = (
            target_budget if target_budget and target_budget.model_fields_set & set(pair) else self
            for pair in LIMIT_PAIRS
        )
        return VariantLimits(latency.latency_p50_ms, latency.latency_p50, size.size_bytes, size.size)

    def for_target(self, target: str) -> Budget:
        """Return the budget that holds for one target: the target's own limits replace those of the whole budget."""
        if self.is_plain:
            return self
        accuracy = {"accuracy_drop_pp": self.accuracy_drop_pp, "accuracy_confidence": self.accuracy_confidence}
        return Budget.model_validate({**accuracy, **vars(self.limits(target))})

    def relative_limits(self) -> Iterator[tuple[str, RelativeLimit]]:
        """Yield every relative limit with its position in the config."""
        places: list[tuple[str, Budget | TargetBudget]] = [("budget", self)]
        places += [(f"budget.targets.{target}", section) for target, section in self.targets.items()]
        for place, section in places:
            for name in ("latency_p50", "size"):
                if (relative := getattr(section, name)) is not None:
                    yield f"{place}.{name}", relative

    def latency_references(self, targets: Sequence[str]) -> dict[str, RelativeLatencyLimit]:
        """Return the relative latency limits of the targets by the name of their reference, which must be timed too."""
        latency_limits = [limits.latency_p50 for limits in map(self.limits, targets)]
        return {limit.of: limit for limit in latency_limits if limit is not None}

    def needs_baseline(self, targets: Sequence[str]) -> bool:
        """Return whether a limit of the given targets refers to the baseline's float files."""
        return any(
            relative is not None and relative.of == BASELINE
            for limits in map(self.limits, targets)
            for relative in (limits.latency_p50, limits.size)
        )

    def with_reference_models(self, reference_models: Mapping[str, ReferenceModel]) -> Budget:
        """Return the budget with the digests and sizes of the reference models filled in.

        Raises
        ------
        ValueError
            The config states a different digest or size. The message begins with the position of the value in the
            config.
        """
        values = self.model_dump()
        places = {
            "": values,
            **{f"targets.{target}.": target_values for target, target_values in values.get("targets", {}).items()},
        }
        for place, limits in places.items():
            for name, key in (("latency_p50", "sha256"), ("size", "bytes")):
                relative = limits.get(name)
                if relative and relative["of"] in reference_models:
                    actual = getattr(reference_models[relative["of"]], key)
                    if relative.setdefault(key, actual) != actual:
                        raise ValueError(
                            f"{place}{name}.{key}: got {relative[key]}, and {relative['of']} has {actual}; leave it out"
                        )
        filled = Budget.model_validate(values)
        for _, limit in filled.relative_limits():
            if isinstance(limit, RelativeLatencyLimit) and limit.of in reference_models:
                limit._file = reference_models[limit.of].file
        return filled

    def describe_limits(
        self, targets: Sequence[str], latency: str = "p50 at most {}", size: str = "at most {}"
    ) -> list[str]:
        """Describe each limit on latency and size. If the targets differ, each description begins with its target."""
        by_target = {target: self.limits(target) for target in targets}
        differ = len({(each.latency_text(), each.size_text()) for each in by_target.values()}) > 1
        lines = []
        for target, limits in by_target.items():
            each = [latency.format(limits.latency_text())] if limits.has_latency_limit else []
            each += [size.format(limits.size_text())] if limits.size_text() else []
            lines += [f"{target}: {', '.join(each) or 'any'}"] if differ else each
        return list(dict.fromkeys(lines))

    def without_latency(self) -> Budget:
        """Return the same budget without any limit on latency."""
        values = self.model_dump(exclude={"latency_p50"}) | {"latency_p50_ms": None}
        target_limits = {
            target: {name: limit for name, limit in limits.items() if name not in LIMIT_PAIRS[0]}
            for target, limits in values.pop("targets", {}).items()
        }
        return Budget.model_validate(values | ({"targets": target_limits} if any(target_limits.values()) else {}))


@dataclass(frozen=True)
class ReferenceModel:
    """A model file that a relative limit can refer to.

    `file` is its entry in `benchmark.rivals`, with an absolute path.
    """

    file: dict[str, Any]
    sha256: str
    bytes: int


@dataclass(frozen=True)
class VariantLimits:
    """Limits on latency and size for one target.

    An absolute limit and its relative counterpart are never both set.
    """

    latency_p50_ms: float | None
    latency_p50: RelativeLatencyLimit | None
    size_bytes: int | None
    size: RelativeSizeLimit | None

    @property
    def has_latency_limit(self) -> bool:
        """Whether there is a limit on latency."""
        return self.latency_p50_ms is not None or self.latency_p50 is not None

    def exceeds_latency(self, low_ms: float, ratio_low: Callable[[str], float]) -> bool:
        """Return whether a p50 is significantly above its limit.

        `low_ms` is the lower bound of the p50's confidence interval. `ratio_low(name)` returns the lower bound of the
        ratio of this p50 to the p50 of the reference `name`.
        """
        if self.latency_p50 is not None:
            return ratio_low(self.latency_p50.of) > self.latency_p50.ratio
        return self.latency_p50_ms is not None and low_ms > self.latency_p50_ms

    def max_bytes(self, baseline_bytes: int | None = None) -> int | None:
        """Return the largest size allowed, or None if there is no limit or the size of the baseline is not known.

        A relative limit allows at least one byte.
        """
        if self.size is None:
            return self.size_bytes
        reference_bytes = baseline_bytes if self.size.of == BASELINE else self.size.bytes
        return None if reference_bytes is None else max(1, int(self.size.ratio * reference_bytes + 1e-9))

    def latency_text(self) -> str:
        """Return `0.052 ms` or `0.6 of theirs.tflite's p50`; an empty text if there is no limit."""
        if self.latency_p50 is not None:
            return f"{self.latency_p50.ratio:g} of {_possessive(self.latency_p50.of)} p50"
        return "" if self.latency_p50_ms is None else f"{self.latency_p50_ms:g} ms"

    def size_text(self, baseline_bytes: int | None = None, unit: str = " bytes") -> str:
        """Return `59,000 bytes` or `59,097 bytes (0.6 of theirs.tflite)`; an empty text if there is no limit."""
        limit = self.max_bytes(baseline_bytes)
        if self.size is None:
            return "" if limit is None else f"{limit:,}{unit}"
        relative = f"{self.size.ratio:g} of {'the float baseline' if self.size.of == BASELINE else self.size.of}"
        return relative if limit is None else f"{limit:,}{unit} ({relative})"


def _possessive(name: str) -> str:
    return "the float baseline's" if name == BASELINE else f"{name}'s"


def _translated(values: Any, allowed: tuple[str, ...] = ("accuracy", "latency_p50", "size")) -> Any:
    return limits_from_goals(values, allowed) if isinstance(values, dict) and "goals" in values else values


def _check_one_of_each(limits: Budget | TargetBudget) -> None:
    for absolute, relative in LIMIT_PAIRS:
        if getattr(limits, absolute) is not None and getattr(limits, relative) is not None:
            raise ValueError(
                f"{absolute} and {relative}: only one of the two can be set; leave the other out, or set it to null"
            )


GOAL_TYPES = ("threshold", "max-degradation", "min-improvement", "percent-max-degradation", "percent-min-improvement")
BASELINE = "baseline"
MAX_GOAL_VALUE = 1e15
"""Largest value of a goal: a petabyte if it is a size, or thirty thousand years if it is in milliseconds."""


def limits_from_goals(values: Mapping[str, Any], allowed: tuple[str, ...] = ("accuracy", "latency_p50", "size")) -> Any:
    """Return the values of a budget with its `goals` translated to limits.

    Raises
    ------
    ValueError
        A goal has no counterpart among the limits of this budget.
    """
    goals = values.get("goals")
    limits = {name: value for name, value in values.items() if name != "goals"}
    if not isinstance(goals, dict):
        raise ValueError(f"goals: got {goals!r}; write goals: {{latency_p50: {{type: threshold, value: 5}}}}")
    for metric, goal in goals.items():
        if metric not in allowed:
            raise ValueError(f"goals.{metric}: no such metric here; use {', '.join(allowed)}")
        name, limit = GOAL_TRANSLATORS[metric](*_parts(f"goals.{metric}", goal))
        if conflicting := [each for each in CONFLICTING_LIMITS[metric] if each in values]:
            raise ValueError(
                f"goals.{metric} and {', '.join(conflicting)}: both limit the same quantity; leave one of them out"
            )
        limits[name] = limit
    return limits


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
    reason = "no limit requires a variant to be better than the baseline"
    if kind == "threshold":
        reason = "the budget limits the drop below the baseline, not the accuracy itself"
    if kind == "percent-max-degradation":
        reason = "a fraction of the baseline's accuracy is not known before the baseline is trained"
    raise ValueError(
        f"{where}: {kind} {value:g} has no counterpart, because {reason}; use max-degradation with a fraction"
    )


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
    """Return a limit relative to the baseline. For both metrics, less is better."""
    if not kind.startswith("percent-") and value:
        raise ValueError(
            f"{where}: {kind} of {value:g} {unit} has no counterpart, because a limit relative to the baseline is a "
            f"ratio; use percent-{kind}, or threshold"
        )
    share = value / 100 if kind.endswith("degradation") else -value / 100
    if share <= -1:
        raise ValueError(f"{where}: got {value:g} % less; no file can meet a goal of more than 99 %")
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
