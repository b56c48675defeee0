"""Words for a device's shell, and words of a device's for people."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")
LONGEST = 400


def shell_command(words: Sequence[str]) -> str:
    """The words as one line of a POSIX shell; only `~/` at the beginning of one means something to it."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    return f'"$HOME"/{shlex.quote(word[2:])}' if word.startswith("~/") else shlex.quote(word)


def printable(text: object, most: int = LONGEST) -> str:
    """What a device said, in one line: no control characters that a terminal would obey, and not without end."""
    line = UNPRINTABLE.sub(" ", str(text)).strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def last_line(said: bytes, most: int = LONGEST) -> str:
    """The last line that says something, without the name of the program that said it."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return printable(lines[-1].removeprefix("edgerun: "), most) if lines else ""
