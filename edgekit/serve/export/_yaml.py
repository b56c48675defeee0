"""YAML in blocks, as little of it as manifests and rules need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def text(value: Mapping[str, Any]) -> bytes:
    """Mappings, lists of mappings or scalars, and scalars; what is none of the former is spelled as JSON is.

    YAML reads JSON's scalars as they are meant. Text that holds quotes or several lines is a block, for people.
    """
    return ("\n".join(_lines(value, "")) + "\n").encode()


def _lines(value: Any, indent: str) -> list[str]:
    lines = []
    items = (
        [(f"{json.dumps(key) if '/' in key else key}:", each) for key, each in value.items()]
        if isinstance(value, dict)
        else [("-", each) for each in value]
    )
    for head, each in items:
        if isinstance(each, str) and ('"' in each or "\n" in each):
            lines += [f"{indent}{head} |-", *(f"{indent}  {line}" for line in each.splitlines())]
        elif not isinstance(each, (dict, list)):
            lines.append(f"{indent}{head} {json.dumps(each, ensure_ascii=False)}")
        elif head == "-":
            first, *rest = _lines(each, f"{indent}  ")
            lines += [f"{indent}- {first.strip()}", *rest]
        else:
            lines += [f"{indent}{head}", *_lines(each, f"{indent}  ")]
    return lines
