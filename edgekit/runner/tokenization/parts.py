"""What the readers of a `tokenizer.json` share: its parts, and the refusal of what they do not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.runner.errors import InputError

MOST_ID = 2**31


def refuse_unless(holds: Any, what: str, got: Any, known: str) -> None:
    """InputError for a part of the file that this reader does not know."""
    if not holds:
        raise InputError(f"{what}: got {str(got)[:80]!r}; this reader knows {known}")


def kind_of(section: Any) -> str | None:
    """The `type` of a part of the file; None where it has no such part."""
    return section.get("type") if isinstance(section, dict) else None


def flat(section: Any, inner: str) -> Sequence[Any]:
    """The parts of a `Sequence`, or the one part there is, or none."""
    if section is None:
        return ()
    if kind_of(section) == "Sequence" and isinstance(section.get(inner), list):
        return tuple(section[inner])
    return (section,)


def vocabulary_of(section: Any) -> dict[str, int]:
    """The tokens of a file and their ids; InputError where they are none."""
    if not isinstance(section, dict) or not section:
        raise InputError("model.vocab: no tokens; it must be an object of tokens and ids")
    if not all(is_id(value) for value in section.values()):
        raise InputError("model.vocab: every id must be a whole number from 0")
    return section


def is_id(value: Any) -> bool:
    """Whether it is a whole number that an int32 holds."""
    return type(value) is int and 0 <= value < MOST_ID
