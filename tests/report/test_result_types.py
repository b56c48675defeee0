"""The types of result.json's rows, which mypy checks, say what the schema says, which every result is held to."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from edgekit.core.rows import by_class, conditions, cost, decisions, devices, loads, streams, variants
from edgekit.report.result import types as whole
from edgekit.report.result.schema import Result

MODULES = (by_class, conditions, cost, decisions, devices, loads, streams, variants, whole)


def models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model of the schema and all that stand in it."""
    yield kind
    for field in kind.model_fields.values():
        for inner in _inside(field.annotation):
            yield from models(inner)


def _inside(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _inside(part)


def spelled(annotation: Any) -> str:
    """One spelling of a type: rows by name, dates as the text that they are in JSON, keys of objects left out."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return spelled(inner[0])
    if origin is NotRequired:
        return f"absent or {spelled(inner[0])}"
    if origin in (Union, types.UnionType):
        return " | ".join(sorted(map(spelled, inner)))
    if origin is Literal:
        return f"one of {inner}"
    if origin is list:
        return f"list[{spelled(inner[0])}]"
    if origin is dict:
        return f"dict[{spelled(inner[1])}]"
    if annotation is type(None):
        return "None"
    return "str" if annotation.__name__ in ("AwareDatetime", datetime.__name__) else str(annotation.__name__)


MODELS = {model.__name__: model for model in models(Result)}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_type_of_a_row_says_what_the_schema_says(name: str) -> None:
    kind = next(getattr(module, name) for module in MODULES if hasattr(module, name))
    told = {key: spelled(value) for key, value in get_type_hints(kind, include_extras=True).items()}
    wanted = {}
    for key, field in MODELS[name].model_fields.items():
        found = spelled(field.annotation)
        wanted[field.alias or key] = found if field.is_required() else _absent(found)
    assert {key: _absent(value) if value.startswith("absent or ") else value for key, value in told.items()} == wanted


def _absent(told: str) -> str:
    """What may be absent: whether it may be null as well is not compared, for to pydantic it always may."""
    found = told.removeprefix("absent or ")
    return f"absent or {found.removeprefix('None | ').removesuffix(' | None')}"
