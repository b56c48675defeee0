"""Recorded streams: a file with an answer on each line, as JSON, from which rules give the same events again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.live.types import Answer
from edgekit.runner import bounded_json
from edgekit.runner.errors import InputError
from edgekit.runner.rules import OBJECT, Rule, check_keys, check_rules, is_integer, is_number, is_printable, require

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
_NAMED_RULES = {**_RULES, "model": Rule(is_printable, "must be the name of a model")}
"""Of a recording of several models."""


def to_line(answer: Answer) -> str:
    """Return an answer as a line of JSON with its line break. Floats keep all their bits."""
    values = asdict(answer)
    if not answer.model:
        del values["model"]
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(line: bytes) -> Answer:
    """Return the answer that `to_line` has written. Raises InputError for any other line."""
    try:
        values: Any = bounded_json.loads(line)
    except ValueError as error:
        raise InputError(f"got {line[:80]!r}, which is not JSON: {error}") from None
    rules = _NAMED_RULES if isinstance(values, dict) and "model" in values else _RULES
    check_keys("answer", values, rules)
    check_rules("answer", values, rules)
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


def replay(path: str | os.PathLike[str], rules: Mapping[str, Rules], has_all_sources: bool = True) -> Iterator[Event]:
    """Return the events that rules give to a recorded stream, with the ids that they had when it was live.

    Parameters
    ----------
    path : str or path-like
        The recording.
    rules : dict of Rules
        New rules by the name of their model. If there is one model only, a recording of one needs no name.
    has_all_sources : bool
        Whether each source that a rule names must be in the recording.

    Raises
    ------
    InputError
        A rule names a source that must be in the recording and is not, which is checked before the first event; or the
        file is not a recording, has answers of a model without rules, or a zone or line lies outside the recorded
        picture.
    """
    if has_all_sources:
        _check_sources(path, rules)
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for answer in read(path):
        chosen = rules.get(answer.model) or (None if answer.model or len(rules) > 1 else next(iter(rules.values())))
        if chosen is None:
            if not answer.model:
                raise InputError(f"{path}: has answers of one model, got {', '.join(rules)}; name only its bundle")
            fix = f"name its bundle: models: {{{answer.model}: FILE}} in a configuration"
            raise InputError(f"{path}: has answers of the model {answer.model!r}, not of {', '.join(rules)}; {fix}")
        key = answer.model, answer.source
        if sizes.get(key) != answer.size:
            chosen.check_picture(answer.size, answer.source)
            sizes[key] = answer.size
        yield from chosen.update(answer)


def _check_sources(path: str | os.PathLike[str], rules: Mapping[str, Rules]) -> None:
    """Raise InputError if a rule names a source that is not in the recording."""
    named = [(config.name, source) for each in rules.values() for config in each.configs for source in config.sources]
    recorded = sorted({answer.source for answer in read(path)}) if named else []
    for name, source in named:
        fix = f"the recording has {', '.join(recorded) or 'no answers'}"
        require(source in recorded, f"rules.{name}.sources", source, fix)
