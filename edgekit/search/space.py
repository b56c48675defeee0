"""The space of a study: options of a config with their values, and the conditions under which each option exists."""

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
from edgekit.search.objectives import read as read_objectives

KEY = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
WORDS = ("choices", "low", "high", "step", "log", "when")
When = tuple[tuple[str, tuple[Any, ...]], ...]


def same(one: object, other: object) -> bool:
    """Whether two YAML values are spelled alike: 1, 1.0 and true are three values."""
    return canonical_json(one) == canonical_json(other)


@dataclass(frozen=True)
class Dimension:
    """An option. `name` is its key, with a number behind where the space has several entries for the key."""

    key: str
    name: str
    choices: tuple[Any, ...] | None = None
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    when: When = ()

    @property
    def whole(self) -> bool:
        """Whether its values are ints."""
        return self.choices is None and isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ordered(self) -> bool:
        """Whether its choices are numbers that rise; a sampler is then told their places, and so their order."""
        numbers = [each for each in self.choices or () if isinstance(each, int | float) and not isinstance(each, bool)]
        rising = all(one < other for one, other in zip(numbers, numbers[1:]))
        return self.choices is not None and len(numbers) == len(self.choices) > 1 and rising

    @property
    def labels(self) -> list[str]:
        """Its choices as JSON texts, which every sampler can tell apart."""
        return [canonical_json(choice).decode() for choice in self.choices or ()]

    @property
    def count(self) -> int | None:
        """How many values it has; None for a range without steps."""
        if self.choices is not None:
            return len(self.choices)
        step = self.step or (1 if self.whole else None)
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) / Decimal(str(step))) + 1 if step else None

    @property
    def corners(self) -> list[Any]:
        """Its choices, or the ends of its range."""
        return list(self.choices) if self.choices is not None else [self.value(self.low), self.value(self.high)]

    def active(self, parameters: Mapping[str, Any]) -> bool:
        """Whether it exists beside these values."""
        return all(
            key in parameters and any(same(parameters[key], value) for value in values) for key, values in self.when
        )

    def holds(self, value: object) -> bool:
        """Whether `value` is one of its values."""
        if self.choices is not None:
            return any(same(value, choice) for choice in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float) or (self.whole and isinstance(value, float)):
            return False
        return self.low <= value <= self.high and (not self.step or same(self.value(value), self.value(float(value))))

    def value(self, proposed: Any) -> Any:
        """What a trial gets for a sampler's proposal: a choice of its label or place, an int, or a float of few digits.

        Few digits (a thousandth to a ten-thousandth of the range) keep configs readable. They also take away the last
        bits, in which two machines may differ.
        """
        if self.choices is not None:
            return self.choices[proposed if self.ordered else self.labels.index(proposed)]
        if self.step:
            low, step = Decimal(str(self.low)), Decimal(str(self.step))
            stepped = low + step * round((Decimal(str(proposed)) - low) / step)
            while stepped > Decimal(str(self.high)):
                stepped -= step
            return int(stepped) if self.whole else float(stepped)
        if self.whole:
            return int(proposed)
        return min(max(round(float(proposed), self._decimals(proposed)), float(self.low)), float(self.high))

    def _decimals(self, proposed: float) -> int:
        wide = 3 - math.floor(math.log10(self.high - self.low)) if self.high > self.low else 17
        return max(wide, 3 - math.floor(math.log10(proposed))) if self.log else wide

    def row(self) -> DimensionRow:
        """As study.json has it."""
        row: DimensionRow = {"key": self.key}
        if self.choices is not None:
            row["choices"] = list(self.choices)
        else:
            row.update({"low": self.low, "high": self.high, "step": self.step, "log": self.log})
        if self.when:
            row["when"] = {key: list(values) for key, values in self.when}
        return row


def read_dimensions(key: str, entry: Any) -> list[Dimension]:
    """The dimensions that stand under a key of `space:`; ConfigError with one line for each fault."""
    if not re.fullmatch(KEY, key):
        raise ConfigError(f"space.{key}: is no dotted key; write it as after --set, for example prune.ratio")
    entries = entry if _several(entry) else [entry]
    faults, found = FaultCollector(), []
    for number, each in enumerate(entries, 1):
        name = key if len(entries) == 1 else f"{key}#{number}"
        if dimension := faults.collect(lambda each=each, name=name: _one(key, name, each)):  # type: ignore[misc]
            found.append(dimension)
    faults.raise_all()
    for one, other in ((one, other) for place, one in enumerate(found) for other in found[:place]):
        if not _apart(one, other):
            raise ConfigError(
                f"space.{key}: two of its entries can hold at once; give each a `when` with other values of one key"
            )
    return found


def _several(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and all(_is_entry(each) for each in entry)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and bool({"choices", "low", "high"} & set(value)) and set(value) <= set(WORDS)


def _apart(one: Dimension, other: Dimension) -> bool:
    """Whether some condition of the one excludes the other."""
    theirs = dict(other.when)
    return any(
        key in theirs and not any(same(mine, value) for mine in values for value in theirs[key])
        for key, values in one.when
    )


def _one(key: str, name: str, entry: Any) -> Dimension:
    if isinstance(entry, list):
        return Dimension(key, name, choices=_choices(key, entry))
    if not isinstance(entry, dict):
        raise ConfigError(
            f"space.{key}: got {shortened_repr(entry)}; write choices as a list, or a range as {{low: 8, high: 64}}"
        )
    for word in entry:
        if word not in WORDS:
            raise ConfigError(f"space.{key}.{word}: unknown key, {suggest(str(word), WORDS)}")
    when = _when(key, entry.get("when", {}))
    if "choices" not in entry:
        return _range(key, name, entry, when)
    if len(entry) > 1 + ("when" in entry):
        raise ConfigError(f"space.{key}: has both choices and a range; leave one of them out")
    return Dimension(key, name, choices=_choices(key, entry["choices"]), when=when)


def _choices(key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError(
            f"space.{key}: got {shortened_repr(values)} for its choices; give a list with one value or more"
        )
    for value in values:
        if not _finite(value):
            raise ConfigError(f"space.{key}: the choice {shortened_repr(value)} is no finite value; leave it out")
    twice = next((one for place, one in enumerate(values) if any(same(one, each) for each in values[:place])), None)
    if twice is not None or sum(value is None for value in values) > 1:
        raise ConfigError(f"space.{key}: has the choice {shortened_repr(twice)} twice; name each once")
    return tuple(values)


def _finite(value: Any) -> bool:
    try:
        canonical_json(value)
        return True
    except (ValueError, TypeError):
        return False


def _range(key: str, name: str, entry: Mapping[str, Any], when: When) -> Dimension:
    for word in ("low", "high"):
        if word not in entry:
            raise ConfigError(f"space.{key}: has no {word}; a range needs low and high, choices stand in a list")
    low, high, step, log = entry["low"], entry["high"], entry.get("step"), entry.get("log", False)
    for word, value in (("low", low), ("high", high), *([("step", step)] if step is not None else [])):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"space.{key}.{word}: got {shortened_repr(value)}; give a number")
    if not isinstance(log, bool):
        raise ConfigError(f"space.{key}.log: got {shortened_repr(log)}; give true or false")
    if low > high:
        raise ConfigError(f"space.{key}: low {low} is above high {high}; swap them")
    if log and low <= 0:
        raise ConfigError(f"space.{key}: low is {low}, and a logarithm needs more than 0; raise low or leave log out")
    if step is not None and step <= 0:
        raise ConfigError(f"space.{key}.step: got {step}; give a number above 0")
    if log and step is not None:
        raise ConfigError(f"space.{key}: has both log and step, which exclude each other; leave one of them out")
    if any(isinstance(value, float) for value in (low, high, step)):
        low, high, step = float(low), float(high), step if step is None else float(step)
    return Dimension(key, name, low=low, high=high, step=step, log=log, when=when)


def _when(key: str, given: Any) -> When:
    if not isinstance(given, dict) or any(value == [] for value in given.values()):
        raise ConfigError(
            f"space.{key}.when: got {shortened_repr(given)}; name another key of the space and its value, "
            "or a list of them"
        )
    return tuple((other, tuple(value) if isinstance(value, list) else (value,)) for other, value in given.items())


def in_order(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Each behind the options that its `when` names; ConfigError where conditions go in a circle."""
    needs: dict[str, set[str]] = {}
    for each in dimensions:
        needs.setdefault(each.key, set()).update(key for key, _ in each.when)
    placed: list[str] = []
    while waiting := [key for key in needs if key not in placed]:
        free = next((key for key in waiting if needs[key] <= set(placed)), None)
        if free is None:
            raise ConfigError(f"space: `when` goes in a circle: {' → '.join(_circle(needs, waiting))}; leave one out")
        placed.append(free)
    return tuple(sorted(dimensions, key=lambda each: placed.index(each.key)))


def _circle(needs: Mapping[str, Iterable[str]], waiting: Sequence[str]) -> list[str]:
    """A way through what waits, from a key back to itself."""
    walked = [waiting[0]]
    while walked[-1] not in walked[:-1]:
        walked.append(min(key for key in needs[walked[-1]] if key in waiting))
    return walked[walked.index(walked[-1]) :]


def spelled(key: str, value: Any) -> str:
    """`key=value` as `--set` takes it: plain text where YAML reads it back, else JSON in one line."""
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
    """Options in an order in which each stands behind those that its `when` names.

    Parameters of a trial are a mapping of config keys to values, and hold only options that exist beside each other.
    """

    dimensions: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    path: Path = Path("space.yaml")

    @staticmethod
    def load(path: Path, plan_values: Mapping[str, Any]) -> Space:
        """Read the YAML of a space; `plan_values` are those of the config, for the default objectives.

        Raises
        ------
        ConfigError
            With one line for each fault.
        """
        given = yaml_file.read(path)
        faults = FaultCollector()
        for key in given:
            if key not in ("objectives", "space"):
                faults.add(f"{key}: unknown key, {suggest(str(key), ('objectives', 'space'))}")
        objectives = faults.collect(lambda: read_objectives(given.get("objectives"), plan_values))
        dimensions = faults.collect(lambda: _dimensions(given.get("space")))
        try:
            faults.raise_all(MAX_FAULT_LINES)
        except ConfigError as error:
            raise ConfigError("\n".join(f"{path.name}: {line}" for line in str(error).splitlines())) from None
        assert objectives is not None and dimensions is not None
        return Space(dimensions, objectives, path)

    @property
    def count(self) -> float:
        """At most so many points; infinite where a range has no steps."""
        counts = [each.count for each in self.dimensions]
        return math.inf if None in counts else math.prod(count for count in counts if count)

    def rows(self) -> list[DimensionRow]:
        """As study.json has it."""
        return [each.row() for each in self.dimensions]

    def settings(self, parameters: Mapping[str, Any]) -> list[str]:
        """The parameters as `key=value` of `--set`, a section before what stands in it."""
        return [spelled(key, parameters[key]) for key in sorted(parameters, key=lambda key: (key.count("."), key))]

    def existing(self, proposed: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters out of values for every dimension's name, of which only those that exist are kept."""
        parameters: dict[str, Any] = {}
        for each in self.dimensions:
            if each.name in proposed and each.active(parameters):
                parameters[each.key] = proposed[each.name]
        return parameters

    def names(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The opposite: values by the name of the dimension that each belongs to."""
        return {
            each.name: parameters[each.key]
            for each in self.dimensions
            if each.key in parameters and each.active(parameters)
        }

    def point(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The parameters that a config itself has, by its nested values; None where it lies outside of the space."""
        parameters: dict[str, Any] = {}
        for each in self.dimensions:
            if each.active(parameters):
                found, value = _at(values, each.key)
                if not found or not each.holds(value):
                    return None
                parameters[each.key] = value
        return parameters

    def corners(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Each choice and each end of a range: its key, parameters with it, and only it with what it depends on."""
        for each in self.dimensions:
            needed = self._needed(each)
            for value in each.corners:
                fixed = {**needed, each.name: value}
                rest = {other.name: other.corners[0] for other in self.dimensions}
                alone = {other.key: fixed[other.name] for other in self.dimensions if other.name in fixed}
                yield each.key, self.existing({**rest, **fixed}), alone

    def check(self, load: Callable[[Sequence[str]], object]) -> None:
        """Refuse a space whose corners the config refuses; `load` makes a plan of settings, or raises ConfigError.

        A value is refused if the config refuses it beside the first values of all others, and beside its own values.
        Two values that only exclude each other are left to the trials.
        """
        faults, seen = FaultCollector(), set[str]()
        for key, parameters, alone in self.corners():
            first = self._refused(load, parameters)
            if first and (said := self._refused(load, alone)):
                line = said if said.startswith(key) else f"{key}={shortened_repr(alone[key])}: {said}"
                if line not in seen:
                    seen.add(line)
                    faults.add(f"{self.path.name}: space: {line}")
        faults.raise_all(MAX_FAULT_LINES)

    def _refused(self, load: Callable[[Sequence[str]], object], parameters: Mapping[str, Any]) -> str:
        try:
            load(self.settings(parameters))
            return ""
        except ConfigError as error:
            return str(error).splitlines()[0]

    def _needed(self, wanted: Dimension) -> dict[str, Any]:
        """Values, by name, of what a dimension's conditions ask for, and theirs; ConfigError if it can never exist."""
        needed: dict[str, Any] = {}
        waiting = list(wanted.when)
        while waiting:
            key, values = waiting.pop()
            entries = [each for each in self.dimensions if each.key == key]
            each, value = next((each, value) for value in values for each in entries if each.holds(value))
            if each.name in needed and not same(needed[each.name], value):
                raise _never(self.path, wanted)
            needed[each.name] = value
            waiting += each.when
        if not wanted.active(self.existing(needed)):
            raise _never(self.path, wanted)
        return needed


def _never(path: Path, wanted: Dimension) -> ConfigError:
    return ConfigError(f"{path.name}: space.{wanted.key}: its `when` can never hold; correct it, or leave the key out")


def _at(values: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False, None
        found = found[part]
    return True, found


def _dimensions(given: Any) -> tuple[Dimension, ...]:
    if not isinstance(given, dict) or not given:
        got = "nothing" if not given else with_article(type(given).__name__)
        raise ConfigError(f"space: got {got}; name one key of the config or more, each with its values")
    faults = FaultCollector()
    dimensions = list[Dimension]()
    for key, entry in given.items():
        dimensions += faults.collect(partial(read_dimensions, str(key), entry)) or []
    faults.raise_all()
    for each in dimensions:
        faults.collect(partial(_check_when, each, dimensions))
    faults.raise_all()
    return in_order(dimensions)


def _check_when(wanted: Dimension, dimensions: Sequence[Dimension]) -> None:
    """Each condition names another option and values that it has."""
    for key, values in wanted.when:
        entries = [each for each in dimensions if each.key == key]
        if not entries:
            known = sorted({each.key for each in dimensions})
            raise ConfigError(f"space.{wanted.key}.when: {key!r} is no key of this space; {suggest(str(key), known)}")
        for value in values:
            if not any(each.holds(value) for each in entries):
                raise ConfigError(
                    f"space.{wanted.key}.when: {key} never is {shortened_repr(value)}; "
                    "name one of its values in this space"
                )


def identity(parameters: Mapping[str, Any]) -> bytes:
    """The same for the same parameters, whatever their order."""
    return canonical_json(dict(parameters))
