"""Rules for values from untrusted files: the test, and the advice for the error message.

Tables of rules define what a manifest and an input path may contain. This module needs no NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from typing import TypeGuard


class Rule(NamedTuple):
    """A test of one value, and the end of the message if it fails."""

    holds: Callable[[Any], bool]
    fix: str


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether the value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether the value is an integer above 0."""
    return is_integer(value) and value > 0


def is_number(value: Any) -> TypeGuard[float]:
    """Whether the value is a finite number and not a bool."""
    largest = sys.float_info.max  # a Python integer may be larger
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def is_list(value: Any) -> bool:
    """Whether the value is a non-empty list, or a tuple, which a frozen record has in place of a list."""
    return isinstance(value, (list, tuple)) and bool(value)


def is_shape(value: Any) -> bool:
    """Whether the value is a list of integers above 0."""
    return is_list(value) and all(map(is_count, value))


def is_limits(value: Any) -> bool:
    """Whether the value is a pair of numbers in ascending order."""
    return is_list(value) and len(value) == 2 and all(map(is_number, value)) and bool(value[0] <= value[1])


def is_printable(value: Any) -> bool:
    """Whether the value is text without control characters, such as line breaks."""
    return isinstance(value, str) and bool(value) and value.isprintable()


def one_of(values: Collection[Any], fix: str = "") -> Rule:
    """Return a rule for values that are one of these texts or integers."""
    return Rule(lambda value: type(value) in (str, int) and value in values, fix or f"known: {', '.join(values)}")


SHAPE = Rule(is_shape, "must list whole numbers above 0")
OBJECT = Rule(lambda value: isinstance(value, dict), "must be an object")
FLAG = Rule(lambda value: isinstance(value, bool), "must be true or false")
TEXT = Rule(lambda value: isinstance(value, str), "must be text")
PRINTABLE = Rule(is_printable, "must be text")
TEXTS = Rule(lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value), "must list text")


def require(holds: Any, key: str, value: Any, fix: str) -> None:
    """Raise InputError with the key, the value and the fix, unless the condition holds."""
    if not holds:
        raise InputError(f"{key}: got {str(value)[:200]!r}; {fix}")


def check_rules(where: str, values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Raise InputError for the first key whose value breaks its rule. `where` is put in front of the key."""
    for key, rule in rules.items():
        require(rule.holds(values[key]), f"{where}.{key}" if where else key, values[key], rule.fix)


def check_keys(where: str, values: Any, expected: Collection[str]) -> None:
    """Raise InputError unless the value is an object with exactly these keys."""
    require(isinstance(values, dict), where, values, OBJECT.fix)
    unknown, missing = sorted(set(values) - set(expected)), sorted(set(expected) - set(values))
    if unknown or missing:
        raise InputError(f"{where}: unknown keys {unknown}, missing keys {missing}")
