"""Whether JSON is what a TypedDict says: its keys, and the types of its values, down to the last list."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from edgekit.core.config import truncated


def wrong(value: Any, kind: Any, where: str = "") -> str:
    """What is not as it should be and where, `trials[3].number is 'x'`; empty where all is. Further keys may stand."""
    if is_typeddict(kind):
        return _row(value, kind, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        each = (wrong(one, inner[0], f"{where}[{place}]") for place, one in enumerate(value))
        return next(filter(None, each), "")
    if origin is dict and isinstance(value, dict):
        pairs = (wrong(one, inner[1], f"{where}.{name}") for name, one in value.items())
        return next(filter(None, pairs), "")
    return "" if _is(value, kind) else f"{where} is {truncated(value)}"


def _row(value: Any, kind: Any, where: str) -> str:
    if not isinstance(value, Mapping):
        return f"{where or 'it'} is no object"
    for name, declared in get_type_hints(kind, include_extras=True).items():
        place = f"{where}.{name}" if where else name
        optional = get_origin(declared) is NotRequired
        if name not in value:
            if optional:
                continue
            return f"{place} is missing"
        if found := wrong(value[name], get_args(declared)[0] if optional else declared, place):
            return found
    return ""


def _is(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, types.UnionType):
        return any(not wrong(value, one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)
