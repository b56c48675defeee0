"""JSON that came from elsewhere: no nesting without end, no number that float64 or int64 has not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from edgekit.runner.errors import bounded_recursion

MAX_INTEGER_CHARACTERS = 20
"""Characters of a whole number: those of the least int64."""


def loads(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """What stands in UTF-8 bytes; ValueError for what is not JSON, is nested too deep, or holds a number too large.

    Python's own reader takes whole numbers of thousands of digits, which overflow wherever they become a float later.
    """
    try:
        with bounded_recursion():
            return json.loads(
                data.decode("utf-8"),
                object_pairs_hook=pairs,
                parse_int=_bounded_int,
                parse_float=_finite_float,
                parse_constant=_refuse_constant,
            )
    except RecursionError:
        raise ValueError("nested too deep") from None


def _bounded_int(text: str) -> int:
    if len(text) > MAX_INTEGER_CHARACTERS:
        raise ValueError(f"a whole number of {len(text)} characters; at most {MAX_INTEGER_CHARACTERS} are taken")
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is beyond what a float holds")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
