"""Read YAML that is written by hand: duplicate keys are refused, aliases are limited, and errors name the line."""

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
    """Limits of a file, and the words `what` and `advice` for messages about them.

    `values` limits the number of values after aliases are expanded, because a few aliases can expand to more values
    than fit into memory.
    """

    what: str
    bytes: int
    values: int
    advice: str


CONFIG_LIMITS = FileLimits("a config", 1_000_000, 20_000, "a config needs few values: leave the aliases out")


class UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, of which PyYAML would silently keep the last, and unquoted dates.

    A config holds no dates, so a value that looks like one was meant as text. The loader also refuses aliases that
    expand to too many values.
    """

    _depth = 0
    limits = CONFIG_LIMITS

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:  # well before Python's own limit, which other code may have raised
            raise ConfigError("not a YAML config: it is nested too deeply; a config has only a few levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _expanded_size(node, {}, set(), self.limits)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        duplicates = {str(key) for key in keys if keys.count(key) > 1} if len(keys) > _distinct_count(keys) else set()
        if duplicates:
            raise ConfigError(
                f"line {node.start_mark.line + 1}: duplicate key: {', '.join(map(_printable, sorted(duplicates)))}"
            )
        return super().construct_mapping(node, deep)

    def refuse_date(self, node: yaml.ScalarNode) -> None:
        raise ConfigError(f'line {node.start_mark.line + 1}: {node.value} is read as a date; quote it: "{node.value}"')


UniqueKeyLoader.add_constructor("tag:yaml.org,2002:timestamp", UniqueKeyLoader.refuse_date)


def _printable(key: str) -> str:
    """Escape characters that a terminal would interpret."""
    return key if key.isprintable() else ascii(key)


def _distinct_count(keys: list[Any]) -> int:
    """The number of different keys, or 0 if a key is not hashable, so that the caller compares the keys one by one."""
    try:
        return len(set(keys))
    except TypeError:
        return 0


def _expanded_size(node: yaml.Node, sizes: dict[int, int], ancestors: set[int], limits: FileLimits) -> int:
    """Return the number of values of a node after aliases are expanded.

    Raises
    ------
    ConfigError
        There are too many, or a node contains itself.
    """
    if id(node) in ancestors:
        raise ConfigError(f"line {node.start_mark.line + 1}: an alias refers to a node that contains it; write it out")
    if id(node) not in sizes:
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        children = [child for part in parts for child in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes, ancestors | {id(node)}, limits) for child in children)
    if sizes[id(node)] > limits.values:
        raise ConfigError(
            f"line {node.start_mark.line + 1}: holds more than {limits.values:,} values with its aliases expanded; "
            f"{limits.advice}"
        )
    return sizes[id(node)]


# PyYAML reads YAML 1.1, in which 1e-3 is text, but users mean a number
UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read(path: Path, limits: FileLimits = CONFIG_LIMITS) -> dict[str, Any]:
    """Return the values of a config file.

    Raises
    ------
    ConfigError
        There is no such file, it is not valid, or it is not a mapping.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name the file in it")
    if not path.is_file():
        raise ConfigError(f"{path}: no such config file{_similar_files(path)}")
    if (size := path.stat().st_size) > limits.bytes:
        raise ConfigError(
            f"{path}: {size:,} bytes, but {limits.what} has at most {limits.bytes:,}; is it the wrong file?"
        )
    try:
        values = parse(path.read_text(encoding="utf-8"), limits)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if values is None:
        raise ConfigError(f"{path}: is empty or holds only comments; it needs a mapping of keys to values")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds {with_article(type(values).__name__)}, not a mapping of keys to values")
    return values


def parse(text: str, limits: FileLimits = CONFIG_LIMITS) -> Any:
    """Return the values of a YAML text.

    Raises
    ------
    ConfigError
        The text is not valid. The message names the line.
    """
    try:
        loader = UniqueKeyLoader(text)
        loader.limits = limits
        values = loader.get_single_data()
        json.dumps(values)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"not a YAML config: {_describe_error(error)}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"not a YAML config: {' '.join(str(error).split())[:300]}") from None
    return values


def _describe_error(error: yaml.MarkedYAMLError) -> str:
    """Describe in one line where a text stops being YAML, and why."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = ", ".join(part for part in (error.problem, error.context) if part)
    tabs = "; indent with spaces, not with tabs" if r"'\t'" in problem else ""
    return f"{where}{problem[:300]}{tabs}"


def _similar_files(path: Path) -> str:
    """Suggest the file that was probably meant, here or in `configs`, or list the files in its folder."""
    here, below = (sorted(folder.glob("[!.]*.yaml")) for folder in (path.parent, path.parent / "configs"))
    files = {each.stem: each for each in (*below, *here)}
    if match := closest_match(path.stem, files):
        return f'; did you mean "{files[match]}"?'
    return f"; its folder has {', '.join(each.name for each in here)}" if here else ""
