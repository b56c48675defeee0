"""The fields of result.json, from its published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generate.tables import code, sentence, table
from docs.generate.types import kind, span

PUBLISHED = Path(__file__).parents[1] / "result.schema.json"
HEADER = ("field", "type and range", "meaning")


def fields() -> str:
    """The table of the top level."""
    return _table(schema())


def parts() -> str:
    """A heading and a table for each kind of object inside, in the order in which they are first named."""
    whole = schema()
    named = whole["$defs"]
    return "\n\n".join(
        f"### {name}\n\n{_description(named[name])}\n\n{_table(named[name])}" for name in _in_order(whole)
    )


def schema() -> dict[str, Any]:
    """The published schema."""
    found: dict[str, Any] = json.loads(PUBLISHED.read_text())
    return found


def _in_order(schema: dict[str, Any]) -> list[str]:
    found: list[str] = []
    waiting = _references(schema["properties"])
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting = _references(schema["$defs"][name]) + waiting
    return found


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for each in value for name in _references(each)]
    if not isinstance(value, dict):
        return []
    here = [value["$ref"].rpartition("/")[2]] if "$ref" in value else []
    return here + [name for key, each in value.items() if key != "discriminator" for name in _references(each)]


def _description(schema: dict[str, Any]) -> str:
    return " ".join(schema.get("description", "").split())


def _table(schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    return table(
        HEADER,
        [
            (
                code(name),
                ", ".join(filter(None, [kind(field), span(field), "" if name in needed else "may be absent"])),
                sentence(_description(field)),
            )
            for name, field in schema["properties"].items()
        ],
    )
