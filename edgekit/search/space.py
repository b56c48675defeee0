"""The search space of a study: options of a config, their possible values, and the conditions for each option."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.core import yaml_file
from edgekit.core.config import shortened_repr, suggest
from edgekit.core.errors import MAX_FAULT_LINES, ConfigError, FaultCollector, with_article
from edgekit.core.hashing import canonical_json
from edgekit.core.schema.study import DimensionRow
from edgekit.search.objectives import Objective
from edgekit.search.objectives import read_objectives as read_objectives

KEY_PATTERN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
ENTRY_KEYS = ("choices", "low", "high", "step", "log", "when")
Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


def same_value(one: object, other: object) -> bool:
    """Whether two YAML values are the same; 1, 1.0 and true are different values."""
    return canonical_json(one) == canonical_json(other)


@dataclass(frozen=True)
class Dimension:
    """One option of a space.

    `name` is the key of the option, followed by a number if the space has several entries for this key. The option
    exists only in trials that meet all conditions in `when`: pairs of another key and the values that it may have.
    """

    key: str
    name: str
    choices: tuple[Any, ...] | None = None
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    when: Conditions = ()

    @property
    def is_integer(self) -> bool:
        """Whether its values are integers."""
        return self.choices is None and isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def is_ordered(self) -> bool:
        """Whether its choices are rising numbers. If so, a sampler gets their indices, which keep the order."""
        numbers = [each for each in self.choices or () if isinstance(each, int | float) and not isinstance(each, bool)]
        rising = all(one < other for one, other in zip(numbers, numbers[1:]))
        return self.choices is not None and len(numbers) == len(self.choices) > 1 and rising

    @property
    def labels(self) -> list[str]:
        """Its choices as JSON texts, so that every sampler can distinguish them (for example 1 and true)."""
        return [canonical_json(choice).decode() for choice in self.choices or ()]

    @property
    def count(self) -> int | None:
        """The number of its values; None for a range without steps."""
        if self.choices is not None:
            return len(self.choices)
        step = self.step or (1 if self.is_integer else None)
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) / Decimal(str(step))) + 1 if step else None

    @property
    def corners(self) -> list[Any]:
        """Its choices, or both ends of its range."""
        return list(self.choices) if self.choices is not None else [self.value(self.low), self.value(self.high)]

    def is_active(self, parameters: Mapping[str, Any]) -> bool:
        """Whether the option exists with these parameters."""
        return all(
            key in parameters and any(same_value(parameters[key], value) for value in values)
            for key, values in self.when
        )

    def contains(self, value: object) -> bool:
        """Whether `value` is a possible value."""
        if self.choices is not None:
            return any(same_value(value, choice) for choice in self.choices)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (self.is_integer and isinstance(value, float))
        ):
            return False
        return self.low <= value <= self.high and (
            not self.step or same_value(self.value(value), self.value(float(value)))
        )

    def value(self, proposed: Any) -> Any:
        """Convert a sampler's proposal to a value of the option.

        For choices, the proposal is a label or an index. Floats are rounded to the power of ten between a thousandth
        and a ten-thousandth of the range, or of the value if the scale is logarithmic and that is finer. This keeps
        configs readable and removes the last bits, in which two machines may differ.
        """
        if self.choices is not None:
            return self.choices[proposed if self.is_ordered else self.labels.index(proposed)]
        if self.step:
            low, step = Decimal(str(self.low)), Decimal(str(self.step))
            stepped = low + step * round((Decimal(str(proposed)) - low) / step)
            while stepped > Decimal(str(self.high)):
                stepped -= step
            return int(stepped) if self.is_integer else float(stepped)
        if self.is_integer:
            return int(proposed)
        return min(max(round(float(proposed), self._decimals(proposed)), float(self.low)), float(self.high))

    def _decimals(self, proposed: float) -> int:
        wide = 3 - math.floor(math.log10(self.high - self.low)) if self.high > self.low else 17
        return max(wide, 3 - math.floor(math.log10(proposed))) if self.log else wide

    def row(self) -> DimensionRow:
        """The dimension as study.json records it."""
        row: DimensionRow = {"key": self.key}
        if self.choices is not None:
            row["choices"] = list(self.choices)
        else:
            row.update({"low": self.low, "high": self.high, "step": self.step, "log": self.log})
        if self.when:
            row["when"] = {key: list(values) for key, values in self.when}
        return row


def read_dimensions(key: str, entry: Any) -> list[Dimension]:
    """Read the dimensions of one key of `space:`.

    Raises
    ------
    ConfigError
        The entry is invalid; the message has one line for each fault.
    """
    if not re.fullmatch(KEY_PATTERN, key):
        raise ConfigError(f"space.{key}: not a dotted key; write it as for --set, for example prune.ratio")
    entries = entry if _is_entry_list(entry) else [entry]
    faults, dimensions = FaultCollector(), []
    for number, each in enumerate(entries, 1):
        name = key if len(entries) == 1 else f"{key}#{number}"
        if dimension := faults.collect(lambda each=each, name=name: _read_dimension(key, name, each)):  # type: ignore[misc]
            dimensions.append(dimension)
    faults.raise_all()
    for one, other in ((one, other) for position, one in enumerate(dimensions) for other in dimensions[:position]):
        if not _exclude_each_other(one, other):
            raise ConfigError(
                f"space.{key}: two of its entries can apply at once; give each a `when` with different values "
                "of one key"
            )
    return dimensions


def _is_entry_list(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and all(_is_entry(each) for each in entry)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and bool({"choices", "low", "high"} & set(value)) and set(value) <= set(ENTRY_KEYS)


def _exclude_each_other(one: Dimension, other: Dimension) -> bool:
    """Whether the conditions of the two dimensions require different values of the same key."""
    other_conditions = dict(other.when)
    return any(
        key in other_conditions
        and not any(same_value(own_value, value) for own_value in values for value in other_conditions[key])
        for key, values in one.when
    )


def _read_dimension(key: str, name: str, entry: Any) -> Dimension:
    if isinstance(entry, list):
        return Dimension(key, name, choices=_read_choices(key, entry))
    if not isinstance(entry, dict):
        raise ConfigError(
            f"space.{key}: got {shortened_repr(entry)}; write choices as a list, or a range as {{low: 8, high: 64}}"
        )
    for word in entry:
        if word not in ENTRY_KEYS:
            raise ConfigError(f"space.{key}.{word}: unknown key, {suggest(str(word), ENTRY_KEYS)}")
    when = _read_conditions(key, entry.get("when", {}))
    if "choices" not in entry:
        return _read_range(key, name, entry, when)
    if len(entry) > 1 + ("when" in entry):
        raise ConfigError(f"space.{key}: has both choices and a range; leave one of them out")
    return Dimension(key, name, choices=_read_choices(key, entry["choices"]), when=when)


def _read_choices(key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError(
            f"space.{key}: got {shortened_repr(values)} for its choices; give a list with at least one value"
        )
    for value in values:
        if not _is_serializable(value):
            raise ConfigError(f"space.{key}: the choice {shortened_repr(value)} is not a finite value; leave it out")
    repeated = next(
        (value for position, value in enumerate(values) if any(same_value(value, each) for each in values[:position])),
        None,
    )
    if repeated is not None or sum(value is None for value in values) > 1:
        raise ConfigError(f"space.{key}: lists the choice {shortened_repr(repeated)} twice; name each choice once")
    return tuple(values)


def _is_serializable(value: Any) -> bool:
    try:
        canonical_json(value)
        return True
    except (ValueError, TypeError):
        return False


def _read_range(key: str, name: str, entry: Mapping[str, Any], when: Conditions) -> Dimension:
    for word in ("low", "high"):
        if word not in entry:
            raise ConfigError(f"space.{key}: {word} is missing; a range needs low and high, and choices are a list")
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), entry.get("log", False)
    for word, value in (("low", low), ("high", high), *([("step", step)] if step is not None else [])):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"space.{key}.{word}: got {shortened_repr(value)}; give a number")
    if not isinstance(log, bool):
        raise ConfigError(f"space.{key}.log: got {shortened_repr(log)}; give true or false")
    if low > high:
        raise ConfigError(f"space.{key}: low {low} is above high {high}; swap them")
    if log and low <= 0:
        raise ConfigError(f"space.{key}: low is {low}, but a log scale needs more than 0; raise low or leave log out")
    if step is not None and step <= 0:
        raise ConfigError(f"space.{key}.step: got {step}; give a number above 0")
    if log and step is not None:
        raise ConfigError(f"space.{key}: has both log and step, which exclude each other; leave one of them out")
    if any(isinstance(value, float) for value in (low, high, step)):
        low, high, step = float(low), float(high), step if step is None else float(step)
    return Dimension(key, name, low=low, high=high, step=step, log=log, when=when)


def _read_conditions(key: str, entry: Any) -> Conditions:
    if not isinstance(entry, dict) or any(value == [] for value in entry.values()):
        raise ConfigError(
            f"space.{key}.when: got {shortened_repr(entry)}; name another key of the space and its value, "
            "or a list of them"
        )
    return tuple((other, tuple(value) if isinstance(value, list) else (value,)) for other, value in entry.items())


def sort_by_dependency(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Sort dimensions so that each comes after the options that its `when` names.

    Raises
    ------
    ConfigError
        The conditions form a cycle.
    """
    required: dict[str, set[str]] = {}
    for each in dimensions:
        required.setdefault(each.key, set()).update(key for key, _ in each.when)
    sorted_keys: list[str] = []
    while remaining := [key for key in required if key not in sorted_keys]:
        next_key = next((key for key in remaining if required[key] <= set(sorted_keys)), None)
        if next_key is None:
            raise ConfigError(
                f"space: the conditions in `when` form a cycle: {' → '.join(_find_cycle(required, remaining))}; "
                "leave one out"
            )
        sorted_keys.append(next_key)
    return tuple(sorted(dimensions, key=lambda each: sorted_keys.index(each.key)))


def _find_cycle(required: Mapping[str, Iterable[str]], remaining: Sequence[str]) -> list[str]:
    """A path through the remaining keys, from one key back to itself."""
    path = [remaining[0]]
    while path[-1] not in path[:-1]:
        path.append(min(key for key in required[path[-1]] if key in remaining))
    return path[path.index(path[-1]) :]


def format_setting(key: str, value: Any) -> str:
    """Format `key=value` for `--set`: plain text if YAML reads it back unchanged, otherwise JSON in one line."""
    from edgekit.core.yaml_file import parse

    plain = isinstance(value, str) and re.fullmatch(r"[\w.:/+-]+", value)
    try:
        if plain and parse(value) == value:
            return f"{key}={value}"
    except ConfigError:
        pass
    return f"{key}={json.dumps(value, ensure_ascii=False, sort_keys=True)}"


@dataclass(frozen=True)
class Space:
    """The options of a study, sorted so that each comes after those that its `when` names.

    The parameters of a trial map config keys to values. They contain only the options that exist in this trial.
    """

    dimensions: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    path: Path = Path("space.yaml")

    @staticmethod
    def load(path: Path, plan_values: Mapping[str, Any]) -> Space:
        """Read the YAML file of a space.

        `plan_values` are the values of the config. They decide the default objectives.

        Raises
        ------
        ConfigError
            The file is invalid; the message has one line for each fault.
        """
        content = yaml_file.read(path)
        faults = FaultCollector()
        for key in content:
            if key not in ("objectives", "space"):
                faults.add(f"{key}: unknown key, {suggest(str(key), ('objectives', 'space'))}")
        objectives = faults.collect(lambda: read_objectives(content.get("objectives"), plan_values))
        dimensions = faults.collect(lambda: _read_space(content.get("space")))
        try:
            faults.raise_all(MAX_FAULT_LINES)
        except ConfigError as error:
            raise ConfigError("\n".join(f"{path.name}: {line}" for line in str(error).splitlines())) from None
        assert objectives is not None and dimensions is not None
        return Space(dimensions, objectives, path)

    @property
    def count(self) -> float:
        """An upper bound on the number of points in the space; infinite if a range has no steps."""
        counts = [each.count for each in self.dimensions]
        return math.inf if None in counts else math.prod(count for count in counts if count)

    def rows(self) -> list[DimensionRow]:
        """The space as study.json records it."""
        return [each.row() for each in self.dimensions]

    def settings(self, parameters: Mapping[str, Any]) -> list[str]:
        """The parameters as `key=value` settings for `--set`, a section before the keys inside it."""
        return [
            format_setting(key, parameters[key]) for key in sorted(parameters, key=lambda key: (key.count("."), key))
        ]

    def active_parameters(self, proposed: Mapping[str, Any]) -> dict[str, Any]:
        """Convert `proposed` (values by dimension name) to parameters, without the options that do not exist."""
        parameters: dict[str, Any] = {}
        for each in self.dimensions:
            if each.name in proposed and each.is_active(parameters):
                parameters[each.key] = proposed[each.name]
        return parameters

    def values_by_name(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse of `active_parameters`: values by the name of their dimension."""
        return {
            each.name: parameters[each.key]
            for each in self.dimensions
            if each.key in parameters and each.is_active(parameters)
        }

    def parameters_of_config(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The parameters that correspond to the nested values of a config; None if the config is outside the space."""
        parameters: dict[str, Any] = {}
        for each in self.dimensions:
            if each.is_active(parameters):
                exists, value = _lookup(values, each.key)
                if not exists or not each.contains(value):
                    return None
                parameters[each.key] = value
        return parameters

    def corners(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """For each choice and each end of a range, yield its key and two sets of parameters.

        The first set combines the value with the first value of every other option. The second set has only the value
        and those values that its conditions require.
        """
        for each in self.dimensions:
            required = self._required_values(each)
            for value in each.corners:
                fixed = {**required, each.name: value}
                others = {other.name: other.corners[0] for other in self.dimensions}
                own_parameters = {other.key: fixed[other.name] for other in self.dimensions if other.name in fixed}
                yield each.key, self.active_parameters({**others, **fixed}), own_parameters

    def check(self, load: Callable[[Sequence[str]], object]) -> None:
        """Check the values of the space by loading the config with them.

        A value counts as wrong only if `load` rejects it twice: together with the first values of all other options,
        and together with the config's own values. Values that are only wrong in some combinations are not reported,
        because a trial with such a combination simply fails.

        Parameters
        ----------
        load
            Makes a plan of the config with these settings, or raises `ConfigError`.

        Raises
        ------
        ConfigError
            Some values are wrong; the message has one line for each.
        """
        faults, reported = FaultCollector(), set[str]()
        for key, parameters, own_parameters in self.corners():
            refusal = self._refusal(load, parameters)
            if refusal and (own_refusal := self._refusal(load, own_parameters)):
                line = (
                    own_refusal
                    if own_refusal.startswith(key)
                    else f"{key}={shortened_repr(own_parameters[key])}: {own_refusal}"
                )
                if line not in reported:
                    reported.add(line)
                    faults.add(f"{self.path.name}: space: {line}")
        faults.raise_all(MAX_FAULT_LINES)

    def _refusal(self, load: Callable[[Sequence[str]], object], parameters: Mapping[str, Any]) -> str:
        try:
            load(self.settings(parameters))
            return ""
        except ConfigError as error:
            return str(error).splitlines()[0]

    def _required_values(self, dimension: Dimension) -> dict[str, Any]:
        """The values that a dimension's conditions require, by the name of their dimension.

        Raises `ConfigError` if the conditions can never be met.
        """
        required: dict[str, Any] = {}
        conditions = list(dimension.when)
        while conditions:
            key, values = conditions.pop()
            entries = [other for other in self.dimensions if other.key == key]
            other, value = next((other, value) for value in values for other in entries if other.contains(value))
            if other.name in required and not same_value(required[other.name], value):
                raise _unsatisfiable(self.path, dimension)
            required[other.name] = value
            conditions += other.when
        if not dimension.is_active(self.active_parameters(required)):
            raise _unsatisfiable(self.path, dimension)
        return required


def _unsatisfiable(path: Path, dimension: Dimension) -> ConfigError:
    return ConfigError(
        f"{path.name}: space.{dimension.key}: its `when` is never true; correct it, or leave the key out"
    )


def _lookup(values: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    value: Any = values
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _read_space(entries: Any) -> tuple[Dimension, ...]:
    if not isinstance(entries, dict) or not entries:
        description = "nothing" if not entries else with_article(type(entries).__name__)
        raise ConfigError(f"space: got {description}; name at least one key of the config, each with its values")
    faults = FaultCollector()
    dimensions = list[Dimension]()
    for key, entry in entries.items():
        dimensions += faults.collect(partial(read_dimensions, str(key), entry)) or []
    faults.raise_all()
    for each in dimensions:
        faults.collect(partial(_check_conditions, each, dimensions))
    faults.raise_all()
    return sort_by_dependency(dimensions)


def _check_conditions(dimension: Dimension, dimensions: Sequence[Dimension]) -> None:
    """Check that each condition names a key of the space, and values that this key can have."""
    for key, values in dimension.when:
        entries = [each for each in dimensions if each.key == key]
        if not entries:
            keys = sorted({each.key for each in dimensions})
            raise ConfigError(
                f"space.{dimension.key}.when: {key!r} is not a key of this space; {suggest(str(key), keys)}"
            )
        for value in values:
            if not any(each.contains(value) for each in entries):
                raise ConfigError(
                    f"space.{dimension.key}.when: {key} is never {shortened_repr(value)}; "
                    "name one of its values in this space"
                )


def parameters_id(parameters: Mapping[str, Any]) -> bytes:
    """The same bytes for the same parameters, whatever their order."""
    return canonical_json(dict(parameters))
