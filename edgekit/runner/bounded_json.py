"""Parse JSON from an untrusted source, with limits on nesting and on the size of numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from edgekit.runner.errors import bounded_recursion

MAX_INTEGER_CHARACTERS = 20
"""The length of the smallest int64, sign included."""


def loads(data: bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON from UTF-8 bytes.

    `object_pairs_hook` is passed to `json.loads`. Raises ValueError if the bytes are not JSON, are nested too deeply,
    or contain a number too large for float64 or int64. Python itself would read integers of thousands of digits, which
    overflow as soon as they are converted to a float.
    """
    try:
        with bounded_recursion():
            return json.loads(
                data.decode("utf-8"),
                object_pairs_hook=object_pairs_hook,
                parse_int=_bounded_int,
                parse_float=_finite_float,
                parse_constant=_refuse_constant,
            )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _bounded_int(text: str) -> int:
    if len(text) > MAX_INTEGER_CHARACTERS:
        raise ValueError(f"a whole number of {len(text)} characters; at most {MAX_INTEGER_CHARACTERS} are accepted")
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is beyond the range of a float")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
