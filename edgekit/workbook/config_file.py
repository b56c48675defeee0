"""The `key.key=value` of `--set`, put into the values of a config."""

from __future__ import annotations

import json
import re
from typing import Any

from edgekit.core.config import truncated
from edgekit.core.errors import ConfigError
from edgekit.core.yaml_file import parse


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
        value = parse(text)
    except ConfigError as error:
        raise ConfigError(
            f"--set {key}: {truncated(text)} is not a YAML value; quote it if it is text ({error})"
        ) from None
    *parents, last = key.split(".")
    section = given
    for part in parents:
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {part} holds {inner!r}, not a section")
        section = inner
    section[last] = value
