"""Quote words for a device's shell, and make texts from a device safe to print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")
LONGEST = 400


def shell_command(words: Sequence[str]) -> str:
    """Return the words as one line of a POSIX shell. Only `~/` at the beginning of a word is expanded."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    return f'"$HOME"/{shlex.quote(word[2:])}' if word.startswith("~/") else shlex.quote(word)


def printable(text: object, most: int = LONGEST) -> str:
    """Return a device's text as one line: without control characters, and shortened."""
    line = UNPRINTABLE.sub(" ", str(text)).strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def last_line(output: bytes, most: int = LONGEST) -> str:
    """Return the last line that is not empty, without the program's name."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return printable(lines[-1].removeprefix("edgerun: "), most) if lines else ""
