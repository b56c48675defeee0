"""JSON schema in words: what a value is, and in what range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs.generate.tables import code

Schema = Mapping[str, Any]
PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "`true` or `false`",
    "null": "`null`",
}
FORMATS = {"date-time": "text, a date and time as in RFC 3339"}
SHA256 = "^[0-9a-f]{64}$"


def kind(schema: Schema, link: bool = True) -> str:
    """What a value is: `whole number`, `list of text`, one of some words, or a section by its name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if link else "section"
    if "const" in schema:
        return code(_spelled(schema["const"]))
    if "enum" in schema:
        return "one of " + ", ".join(code(_spelled(word)) for word in schema["enum"])
    for many in ("anyOf", "oneOf", "allOf"):
        if many in schema:
            return " or ".join(dict.fromkeys(kind(each, link) for each in schema[many]))
    if schema.get("type") == "array":
        return f"list of {_plural(kind(schema.get('items', {}), link))}"
    if schema.get("type") == "object":
        return _mapping(schema, link)
    if "format" in schema:
        return FORMATS[schema["format"]]
    if schema.get("pattern") == SHA256:
        return "text, 64 hex digits"
    return PLAIN[schema["type"]] if "type" in schema else "any value"


def span(schema: Schema) -> str:
    """The range of a number, or how many entries a list has; empty where nothing limits it."""
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return "; ".join(filter(None, map(span, schema[many])))
    if schema.get("type") == "array":
        least = schema.get("minItems")
        entries = [f"at least {least} {'entry' if least == 1 else 'entries'}"] if least else []
        inner = span(schema.get("items", {}))
        return "; ".join([*entries, *([f"each {inner}"] if inner else [])])
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    limits = [
        *([f"≥ {low:,}"] if low is not None else []),
        *([f"> {schema['exclusiveMinimum']:,}"] if "exclusiveMinimum" in schema else []),
        *([f"≤ {high:,}"] if high is not None else []),
        *([f"< {schema['exclusiveMaximum']:,}"] if "exclusiveMaximum" in schema else []),
    ]
    return ", ".join(limits)


def _mapping(schema: Schema, link: bool) -> str:
    inner = schema.get("additionalProperties", True)
    if inner is True or inner is False:
        return "mapping"
    return f"mapping to {kind(inner, link)}"


def _plural(word: str) -> str:
    return {"whole number": "whole numbers", "number": "numbers", "mapping": "mappings", "section": "sections"}.get(
        word, word
    )


def _spelled(value: object) -> object:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
