"""Tokens that stand for themselves wherever they are written in a text, such as [SEP]: found before anything else.

The longest that begins furthest left is taken, as the library `tokenizers` does it: first those that are looked for in
the text as it is, then, in what is left, those that are looked for in the normalised text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from edgekit.runner.errors import InputError
from edgekit.runner.tokenization import characters
from edgekit.runner.tokenization.parts import is_id, refuse_unless

Part = tuple[str, "int | None"]
"""A piece of normalised text and None, or what was found there and its id."""


class AddedToken(NamedTuple):
    """`lstrip` and `rstrip`: the white space before it, and behind it, is a part of it."""

    id: int
    content: str
    normalized: bool
    lstrip: bool
    rstrip: bool


class AddedTokens:
    """All of a file; `ids` by what is written."""

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], str]) -> None:
        self.ids = {token.content: token.id for token in tokens}
        self._normalize = normalize
        plain = {token.content: token for token in tokens if not token.normalized}
        normal = {normalize(token.content): token for token in tokens if token.normalized}
        self._plain, self._normal = _Finder(plain), _Finder({text: token for text, token in normal.items() if text})

    def split(self, text: str) -> Iterator[Part]:
        """The text in its order: pieces that are normalised, and the added tokens between them."""
        for piece, known in self._plain.split(text):
            if known is not None:
                yield piece, known
            elif piece:
                yield from self._normal.split(self._normalize(piece))


class _Finder:
    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self._tokens = tokens
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if tokens else None

    def split(self, text: str) -> Iterator[Part]:
        end = 0
        for found in self._pattern.finditer(text) if self._pattern else ():
            token = self._tokens[found[0]]
            start, stop = found.span()
            if token.lstrip:
                start = max(end, len(characters.WHITE_AT_END.sub("", text[:start])))
            if token.rstrip:
                stop += len(text) - stop - len(characters.WHITE_AT_START.sub("", text[stop:]))
            if end < start:
                yield text[end:start], None
            yield text[start:stop], token.id
            end = stop
        if end < len(text):
            yield text[end:], None


def read(section: Any, normalize: Callable[[str], str]) -> AddedTokens:
    """Those of a file's `added_tokens`; InputError for one that is none, or that wants whole words."""
    tokens = section or []
    if not isinstance(tokens, list):
        raise InputError("added_tokens: must be a list")
    return AddedTokens([_token(one, f"added_tokens[{place}]") for place, one in enumerate(tokens)], normalize)


def _token(one: Any, where: str) -> AddedToken:
    holds = isinstance(one, dict) and is_id(one.get("id")) and isinstance(one.get("content"), str) and one["content"]
    if not holds:
        raise InputError(f"{where}: got {str(one)[:80]!r}; it needs an id and a content")
    refuse_unless(not one.get("single_word"), f"{where}.single_word", True, "false")
    return AddedToken(one["id"], one["content"], *(bool(one.get(key)) for key in ("normalized", "lstrip", "rstrip")))
