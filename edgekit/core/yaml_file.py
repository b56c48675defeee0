"""YAML as people write it by hand: no key stands twice, aliases stay small, and errors name the line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgekit.core.config import closest_match
from edgekit.core.errors import ConfigError, with_article

MAX_DEPTH = 50


@dataclass(frozen=True)
class FileLimits:
    """Of a file. `values`, its aliases written out: a few lines of them can stand for more than memory holds."""

    what: str
    bytes: int
    values: int
    advice: str


CONFIG_LIMITS = FileLimits("a config", 1_000_000, 20_000, "a config needs few of them: leave the aliases out")


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice, where PyYAML keeps the last, and aliases that stand for too much.

    A date is refused too: a config has none, so a text was meant.
    """

    _depth = 0
    limits = CONFIG_LIMITS

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:  # long before Python's own limit, which others in the process may have raised
            raise ConfigError("not a YAML config: nested too deeply; a config has a few levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _written_out(node, {}, set(), self.limits)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        twice = {str(key) for key in keys if keys.count(key) > 1} if len(keys) > _different(keys) else set()
        if twice:
            raise ConfigError(
                f"line {node.start_mark.line + 1}: key given twice: {', '.join(map(_shown, sorted(twice)))}"
            )
        return super().construct_mapping(node, deep)

    def refuse_date(self, node: yaml.ScalarNode) -> None:
        raise ConfigError(f'line {node.start_mark.line + 1}: {node.value} is read as a date; quote it: "{node.value}"')


UniqueKeyLoader.add_constructor("tag:yaml.org,2002:timestamp", UniqueKeyLoader.refuse_date)


def _shown(key: str) -> str:
    """Nothing in it that a terminal would obey."""
    return key if key.isprintable() else ascii(key)


def _different(keys: list[Any]) -> int:
    """How many of them differ; 0 where that cannot be told quickly."""
    try:
        return len(set(keys))
    except TypeError:
        return 0


def _written_out(node: yaml.Node, known: dict[int, int], above: set[int], limits: FileLimits) -> int:
    """How many values a node stands for; ConfigError where they are too many, or it stands inside itself."""
    if id(node) in above:
        raise ConfigError(f"line {node.start_mark.line + 1}: an alias stands inside what it stands for; write it out")
    if id(node) not in known:
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        each = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_written_out(one, known, above | {id(node)}, limits) for one in each)
    if known[id(node)] > limits.values:
        raise ConfigError(
            f"line {node.start_mark.line + 1}: holds more than {limits.values:,} values, its aliases written out; "
            f"{limits.advice}"
        )
    return known[id(node)]


# YAML 1.1, which PyYAML reads, takes 1e-3 for text; everybody else means a number
UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read(path: Path, limits: FileLimits = CONFIG_LIMITS) -> dict[str, Any]:
    """The values of a config file; ConfigError where there is none, or no mapping."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name the file in it")
    if not path.is_file():
        raise ConfigError(f"{path}: no such config file{_meant(path)}")
    if (size := path.stat().st_size) > limits.bytes:
        raise ConfigError(
            f"{path}: {size:,} bytes, and {limits.what} has at most {limits.bytes:,}; is it another file?"
        )
    try:
        values = parse(path.read_text(encoding="utf-8"), limits)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if values is None:
        raise ConfigError(f"{path}: is empty, or holds comments alone; it needs a mapping of keys to values")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds {with_article(type(values).__name__)}, not a mapping of keys to values")
    return values


def parse(text: str, limits: FileLimits = CONFIG_LIMITS) -> Any:
    """The values of a YAML text; ConfigError says what is wrong with it, and in which line."""
    try:
        loader = UniqueKeyLoader(text)
        loader.limits = limits
        values = loader.get_single_data()
        json.dumps(values)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"not a YAML config: {_placed(error)}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"not a YAML config: {' '.join(str(error).split())[:300]}") from None
    return values


def _placed(error: yaml.MarkedYAMLError) -> str:
    """Where a text stops being YAML, and why, in one line."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    said = ", ".join(part for part in (error.problem, error.context) if part)
    tabs = "; indent with spaces, not with tabs" if r"'\t'" in said else ""
    return f"{where}{said[:300]}{tabs}"


def _meant(path: Path) -> str:
    """The file that may be meant, here or in `configs`, or what its folder has."""
    here, below = (sorted(folder.glob("[!.]*.yaml")) for folder in (path.parent, path.parent / "configs"))
    found = {each.stem: each for each in (*below, *here)}
    if close := closest_match(path.stem, found):
        return f'; did you mean "{found[close]}"?'
    return f"; its folder has {', '.join(each.name for each in here)}" if here else ""
