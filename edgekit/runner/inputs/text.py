"""Samples from text files in UTF-8: token ids (tokens,) int32, cut or filled up to the bundle's length.

The bundle brings its vocabulary along, a `tokenizer.json`, which the step `tokenize` names. Training reads its texts by
the same code (`edgekit/data/texts.py`), so a text has the same ids in both.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.runner import input_path, tokenization
from edgekit.runner.errors import InputError
from edgekit.runner.input_path import Step
from edgekit.runner.inputs import read_bytes, unsupported_file_message
from edgekit.runner.inputs.windows import Sample, Truncation

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

LARGEST_BYTES = 1 << 20
MOST_MARKS = 1000
"""Combining marks in a row. Unicode's normal form sorts them, in time that grows with their square."""
EMPTY = "an empty text, which has no token of its own"
"""A network would answer it, and the answer would be about nothing."""


class TokenIds(NamedTuple):
    """A text's sample, and how many tokens the whole text has with those that stand around every one."""

    raw: np.ndarray
    tokens: int

    @property
    def cut(self) -> Truncation | None:
        """What was kept of a text that is longer than the sample."""
        return Truncation(len(self.raw), self.tokens) if self.tokens > len(self.raw) else None


def samples(path: str, raw: RawSpec, strict: bool, members: Mapping[str, bytes]) -> Iterator[Sample]:
    """One raw sample of a file; `members` are the bundle's."""
    step = input_path.find_step(raw.steps, "tokenize")
    if step is None:
        raise InputError(f"{path}: {unsupported_file_message('.txt', raw)}")
    content = read_bytes(path, LARGEST_BYTES + 1)
    name = step["vocabulary"]
    found = nonempty_token_ids(
        path, decode(path, content), tokenization.read_tokenizer(members[name], name), step, strict
    )
    return iter((Sample(found.raw, found.cut),))


def decode(name: str, content: bytes) -> str:
    """The text of a file's bytes: UTF-8, a byte order mark at its beginning left out."""
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{name}: more than {LARGEST_BYTES:,} bytes; give the beginning of it, or part it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: no text in UTF-8 (byte {error.start}); save it in UTF-8") from None
    if "\0" in text:
        raise InputError(f"{name}: holds U+0000, so it is no text, or UTF-16; save it in UTF-8")
    return text


def token_ids(name: str, text: str, tokenizer: tokenization.Tokenizer, step: Step, strict: bool = False) -> TokenIds:
    """The sample of a text; InputError for one too long, where the step, or `strict`, says that none is cut."""
    length = step["length"]
    if not text.isascii() and _longest_mark_run(text) > MOST_MARKS:
        raise InputError(f"{name}: more than {MOST_MARKS} combining marks in a row; no writing needs them, remove them")
    whole = tokenizer.encode(text)
    tokens = len(whole)
    if tokens > length and (strict or step["too_long"] == "refuse"):
        out = ", or leave --strict out" if step["too_long"] == "cut" else ""
        raise InputError(f"{name}: {tokens} tokens, the bundle takes {length}; shorten the text{out}")
    kept = whole if tokens <= length else tokenizer.encode(text, length)
    raw = np.full(length, step["pad_id"], np.int32)
    raw[: len(kept)] = kept
    return TokenIds(raw, tokens)


def nonempty_token_ids(name: str, text: str, tokenizer: tokenization.Tokenizer, step: Step, strict: bool) -> TokenIds:
    """The same; InputError for a text without a token of its own."""
    found = token_ids(name, text, tokenizer, step, strict)
    if found.tokens == tokenizer.least:
        raise InputError(f"{name}: {EMPTY}; give it words")
    return found


def _longest_mark_run(text: str) -> int:
    """The longest run of characters that combine with what stands before them."""
    runs = groupby(map(bool, map(unicodedata.combining, text)))
    return max((sum(1 for _ in run) for marks, run in runs if marks), default=0)
