"""The space of a study: options of a config, their values, and the conditions under which each exists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.core import yaml_file
from edgekit.core.config import suggest, truncated
from edgekit.core.errors import ConfigError, with_article
from edgekit.core.faults import MOST, Faults
from edgekit.core.hashing import canonical
from edgekit.core.schema.study import DimensionRow
from edgekit.search import dimension
from edgekit.search.dimension import Dimension, same, spelled
from edgekit.search.objectives import Objective
from edgekit.search.objectives import read as read_objectives


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
        faults = Faults()
        for key in given:
            if key not in ("objectives", "space"):
                faults.add(f"{key}: unknown key, {suggest(str(key), ('objectives', 'space'))}")
        objectives = faults.of(lambda: read_objectives(given.get("objectives"), plan_values))
        dimensions = faults.of(lambda: _dimensions(given.get("space")))
        try:
            faults.raise_all(MOST)
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
        faults, seen = Faults(), set[str]()
        for key, parameters, alone in self.corners():
            first = self._refused(load, parameters)
            if first and (said := self._refused(load, alone)):
                line = said if said.startswith(key) else f"{key}={truncated(alone[key])}: {said}"
                if line not in seen:
                    seen.add(line)
                    faults.add(f"{self.path.name}: space: {line}")
        faults.raise_all(MOST)

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
    faults = Faults()
    dimensions = list[Dimension]()
    for key, entry in given.items():
        dimensions += faults.of(partial(dimension.read, str(key), entry)) or []
    faults.raise_all()
    for each in dimensions:
        faults.of(partial(_check_when, each, dimensions))
    faults.raise_all()
    return dimension.in_order(dimensions)


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
                    f"space.{wanted.key}.when: {key} never is {truncated(value)}; name one of its values in this space"
                )


def identity(parameters: Mapping[str, Any]) -> bytes:
    """The same for the same parameters, whatever their order."""
    return canonical(dict(parameters))
