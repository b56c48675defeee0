"""A config as it was written: YAML in which no key stands twice, and the `key.key=value` of `--set`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from edgekit.config import suggest
from edgekit.errors import ConfigError


class UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key given twice instead of silently keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise ConfigError(f"line {node.start_mark.line + 1}: key given twice: {', '.join(sorted(twice))}")
        return super().construct_mapping(node, deep)


# YAML 1.1, which PyYAML reads, takes 1e-3 for text; everybody else means a number
UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read(path: Path) -> dict[str, Any]:
    """The values of a config file; ConfigError where there is none, or no mapping."""
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such config file" + (f"; {suggest(path.name, beside)}" if beside else ""))
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), UniqueKeys)
        json.dumps(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: not a YAML config: {' '.join(str(error).split())}; quote dates") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds {type(values).__name__}, not a mapping of keys to values")
    return values


def split_settings(text: str) -> list[str]:
    """`'seed=1 data.limit=2000'` → its parts; a space inside a value is kept, a part begins with `key=`."""
    if text.startswith("["):
        return [str(part) for part in json.loads(text)]
    return [part.strip() for part in re.split(r"\s+(?=[A-Za-z_][\w.]*=)", text.strip()) if part.strip()]


def join_settings(parts: list[str]) -> str:
    """The opposite of `split_settings`; as JSON where a value would be torn apart."""
    text = " ".join(parts)
    return text if split_settings(text) == parts else json.dumps(parts)


def override(given: dict[str, Any], setting: str) -> None:
    """Put one `key.key=value` into the values of a file; ConfigError for what is none."""
    key, separator, text = setting.partition("=")
    if not separator or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", key):
        raise ConfigError(f"--set {setting!r}: write it as key=value, for example prune.ratio=0.4")
    try:
        value = yaml.load(text, UniqueKeys)
        json.dumps(value)
    except (yaml.YAMLError, ValueError, TypeError):
        raise ConfigError(f"--set {key}: {text!r} is not a YAML value; quote it if it is text") from None
    *parents, last = key.split(".")
    section = given
    for part in parents:
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {part} holds {inner!r}, not a section")
        section = inner
    section[last] = value
