"""Samples from UTF-8 text files: token IDs (tokens,) int32, truncated or padded to the bundle's length.

The vocabulary, a `tokenizer.json`, is a member of the bundle that the step `tokenize` names. Training reads its texts
by the same code (`edgekit/data/texts.py`), so a text has the same IDs in both.
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
"""Largest run of combining marks. Unicode normalization sorts them in quadratic time."""
EMPTY = "an empty text, which has no tokens"
"""Such a text is refused, because a network's answer to it would mean nothing."""


class TokenIds(NamedTuple):
    """A text's sample, and how many tokens the whole text has, special tokens included."""

    raw: np.ndarray
    tokens: int

    @property
    def cut(self) -> Truncation | None:
        """How much of a text that is longer than the sample was kept, or None."""
        return Truncation(len(self.raw), self.tokens) if self.tokens > len(self.raw) else None


def samples(path: str, raw: RawSpec, strict: bool, members: Mapping[str, bytes]) -> Iterator[Sample]:
    """Yield the single raw sample of a file. `members` are the files of the bundle."""
    step = input_path.find_step(raw.steps, "tokenize")
    if step is None:
        raise InputError(f"{path}: {unsupported_file_message('.txt', raw)}")
    content = read_bytes(path, LARGEST_BYTES + 1)
    name = step["vocabulary"]
    token_sample = nonempty_token_ids(
        path, decode(path, content), tokenization.read_tokenizer(members[name], name), step, strict
    )
    return iter((Sample(token_sample.raw, token_sample.cut),))


def decode(name: str, content: bytes) -> str:
    """Decode a file's bytes as UTF-8, skipping a byte order mark."""
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{name}: more than {LARGEST_BYTES:,} bytes; give the beginning of it, or divide it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text in UTF-8 (byte {error.start}); save it in UTF-8") from None
    if "\0" in text:
        raise InputError(f"{name}: holds U+0000, so it is not text, or it is UTF-16; save it in UTF-8")
    return text


def token_ids(name: str, text: str, tokenizer: tokenization.Tokenizer, step: Step, strict: bool = False) -> TokenIds:
    """Return the sample of a text.

    Raises InputError if it is too long and the step, or `strict`, forbids truncation.
    """
    length = step["length"]
    if not text.isascii() and _longest_mark_run(text) > MOST_MARKS:
        raise InputError(
            f"{name}: more than {MOST_MARKS} combining marks in a row, which no writing system needs; remove them"
        )
    all_ids = tokenizer.encode(text)
    tokens = len(all_ids)
    if tokens > length and (strict or step["too_long"] == "refuse"):
        hint = ", or leave --strict out" if step["too_long"] == "cut" else ""
        raise InputError(f"{name}: {tokens} tokens, but the bundle takes {length}; shorten the text{hint}")
    ids = all_ids if tokens <= length else tokenizer.encode(text, length)
    raw = np.full(length, step["pad_id"], np.int32)
    raw[: len(ids)] = ids
    return TokenIds(raw, tokens)


def nonempty_token_ids(name: str, text: str, tokenizer: tokenization.Tokenizer, step: Step, strict: bool) -> TokenIds:
    """Return the sample of a text like `token_ids`, but raise InputError if the text has no tokens of its own."""
    token_sample = token_ids(name, text, tokenizer, step, strict)
    if token_sample.tokens == tokenizer.special_tokens:
        raise InputError(f"{name}: {EMPTY}; give it words")
    return token_sample


def _longest_mark_run(text: str) -> int:
    """Return the longest run of combining characters."""
    runs = groupby(map(bool, map(unicodedata.combining, text)))
    return max((sum(1 for _ in run) for is_mark, run in runs if is_mark), default=0)
