"""Kinds of characters, and what becomes of them: the same on every Python.

`re` and `unicodedata` know the characters of their own Python's Unicode, which grows from version to version. So the
kinds stand in `unicode_tables.py`. Of what a character becomes, its small letter and its parts, Unicode promises that
it never changes once the character is there. Python is asked for that, but only about characters that its oldest
version here, 3.9 with Unicode 13, knows; the later ones stand in the tables too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from edgekit.runner.tokenization import unicode_tables as tables


def ranges(table: str) -> Iterator[tuple[int, int]]:
    """First and last code point of each range in a table."""
    for part in table.split():
        first, _, last = part.partition("-")
        yield int(first, 16), int(last or first, 16)


def among(*names: str) -> str:
    """The inside of a regular expression's class, of the characters in these tables."""
    return "".join(rf"\U{first:08x}-\U{last:08x}" for name in names for first, last in ranges(getattr(tables, name)))


WHITE = among("WHITE")
WHITE_AT_START, WHITE_AT_END = re.compile(rf"\A[{WHITE}]+"), re.compile(rf"[{WHITE}]+\Z")
CJK = re.compile(f"[{among('CJK')}]")
WORDS_AND_PUNCTUATION = re.compile(f"[{among('PUNCTUATION')}]|[^{WHITE}{among('PUNCTUATION')}]+")
_CONTROL, _WHITE = re.compile(f"[{among('CONTROL')}]+"), re.compile(f"[{WHITE}]")
_MARKS = re.compile(f"[{among('MARKS')}]+")
_KNOWN = re.compile(f"[{among('KNOWN')}]+")
_PARTED = re.compile(f"(?:(?![{among('UNPARTED')}])[{among('KNOWN')}])+")
_LETTER, _NUMBER, _SPACE = among("LETTERS"), among("NUMBERS"), among("SPACES")
BYTE_LEVEL_WORDS = re.compile(
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTER}]+| ?[{_NUMBER}]+| ?[^{_SPACE}{_LETTER}{_NUMBER}]+"
    rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)
"""GPT-2's: 's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""


def clean(text: str) -> str:
    """Without control characters, every white space a plain space."""
    return _WHITE.sub(" ", _CONTROL.sub("", text))


def parted(text: str) -> str:
    """Each character as its parts, marks in their canonical order (NFD)."""
    if text.isascii():
        return text
    return _PARTED.sub(lambda found: unicodedata.normalize("NFD", found[0]), text)


def without_accents(text: str) -> str:
    """The parts without the marks among them."""
    return text if text.isascii() else _MARKS.sub("", parted(text))


class _Lower(dict[int, str]):
    """What `str.translate` asks for: filled in as characters come up."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        small = _LATER.get(code) or (letter.lower() if _KNOWN.match(letter) else letter)
        self[code] = small
        return small


_LATER = {
    int(code, 16): chr(int(small, 16)) for code, _, small in (part.partition(">") for part in tables.LOWER.split())
}
_LOWER = _Lower()


def lower(text: str) -> str:
    """Small letters, each character by itself."""
    return text.lower() if text.isascii() else text.translate(_LOWER)
