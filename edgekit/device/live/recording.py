"""Recorded streams: a file with an answer on each line, as JSON, from which rules give the same events again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.live.types import Answer
from edgekit.runner import bounded_json
from edgekit.runner.errors import InputError
from edgekit.runner.rules import OBJECT, Rule, check_keys, check_rules, is_integer, is_number, is_printable

if TYPE_CHECKING:
    import os

    from edgekit.device.live.rules import Rules
    from edgekit.device.live.types import Event

MOST_LINE_BYTES = 16_000_000


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_integer(each) and each >= 0 for each in value)


_RULES = {
    "source": Rule(is_printable, "must be the name of a source"),
    "number": Rule(lambda value: is_integer(value) and value >= 0, "must be a whole number from 0"),
    "time_s": Rule(is_number, "must be seconds since 1970"),
    "size": Rule(_is_size, "must be width and height"),
    "content": OBJECT,
}


def to_line(answer: Answer) -> str:
    """Return an answer as a line of JSON with its line break. Floats keep all their bits."""
    return json.dumps(asdict(answer), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(line: bytes) -> Answer:
    """Return the answer that `to_line` has written. Raises InputError for any other line."""
    try:
        values: Any = bounded_json.loads(line)
    except ValueError as error:
        raise InputError(f"got {line[:80]!r}, which is not JSON: {error}") from None
    check_keys("answer", values, _RULES)
    check_rules("answer", values, _RULES)
    return Answer(**{**values, "size": tuple(values["size"])})


def read(path: str | os.PathLike[str]) -> Iterator[Answer]:
    """Read the answers of a recording one by one.

    A last line without a line break, which was being written when the recording ended, is left out if it is not
    complete. Raises InputError for a file that cannot be read or a line that is not an answer.
    """
    try:
        with Path(path).open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE_BYTES):
                number += 1
                try:
                    yield from_line(line)
                except InputError as error:
                    if line.endswith(b"\n") or len(line) == MOST_LINE_BYTES:
                        raise InputError(f"{path}, line {number}: {error}; record the stream again") from None
                    return
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; give the file of a recording") from None


def replay(path: str | os.PathLike[str], rules: Rules) -> Iterator[Event]:
    """Return the events that the rules give to a recorded stream, with the ids that they had when it was live.

    `rules` must be new. Raises InputError as `read` does, and for a zone or line outside the recorded picture.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for answer in read(path):
        if sizes.get(answer.source) != answer.size:
            rules.check_picture(answer.size, answer.source)
            sizes[answer.source] = answer.size
        yield from rules.update(answer)
