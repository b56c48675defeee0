"""BERT's WordPiece: each word as the longest pieces that the vocabulary has, from its beginning on.

Devlin et al. 2018, as the library `tokenizers` does it: BertNormalizer, BertPreTokenizer, WordPiece.
"""

from __future__ import annotations

from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.tokenization import characters
from edgekit.runner.tokenization.parts import kind_of, refuse_unless, vocabulary_of

MOST_REMEMBERED = 50_000
"""Words whose pieces are kept: texts of one language share most of theirs."""


class WordPiece:
    """An opened vocabulary with the normaliser that belongs to it."""

    def __init__(self, section: dict[str, Any], normalizer: dict[str, Any] | None) -> None:
        self.vocabulary = vocabulary_of(section.get("vocab"))
        unknown = section.get("unk_token")
        if unknown not in self.vocabulary:
            raise InputError(f"model.unk_token: got {unknown!r}, which is not in the vocabulary")
        self._unknown = self.vocabulary[unknown]
        self._prefix: str = section.get("continuing_subword_prefix", "##")
        self._most: int = section.get("max_input_chars_per_word", 100)
        refuse_unless(isinstance(self._prefix, str), "model.continuing_subword_prefix", self._prefix, "text")
        refuse_unless(type(self._most) is int, "model.max_input_chars_per_word", self._most, "a whole number")
        self._longest = max(map(len, self.vocabulary))
        self._steps = _Normalizer(normalizer)
        self._remembered: dict[str, list[int]] = {}

    def normalize(self, text: str) -> str:
        """The text as words are looked up."""
        return self._steps.apply(text)

    def encode(self, normalized: str) -> list[int]:
        """The ids of a normalised text's words and punctuation."""
        ids: list[int] = []
        for word in characters.WORDS_AND_PUNCTUATION.findall(normalized):
            pieces = self._remembered.get(word)
            if pieces is None:
                pieces = self._pieces(word)
                if len(self._remembered) < MOST_REMEMBERED:
                    self._remembered[word] = pieces
            ids += pieces
        return ids

    def joined(self, tokens: list[str]) -> str:
        """Words with spaces between them: what a person can read, not the text as it was."""
        return " ".join(tokens).replace(f" {self._prefix}", "")

    def _pieces(self, word: str) -> list[int]:
        """Of a word that cannot be put together, or is too long, the one id of the unknown."""
        if len(word) > self._most:
            return [self._unknown]
        ids, start = [], 0
        while start < len(word):
            prefix = self._prefix if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                found = self.vocabulary.get(prefix + word[start:end])
                if found is not None:
                    break
            else:
                return [self._unknown]
            ids.append(found)
            start = end
        return ids


class _Normalizer:
    """BertNormalizer: clean, CJK characters apart, accents away, small letters; each where the file says so."""

    def __init__(self, section: dict[str, Any] | None) -> None:
        options = section or {}
        self.clean, self.cjk, self.lower = (
            bool(options.get(key, section is not None)) for key in ("clean_text", "handle_chinese_chars", "lowercase")
        )
        accents = options.get("strip_accents")
        self.accents = self.lower if accents is None else bool(accents)

    def apply(self, text: str) -> str:
        if self.clean:
            text = characters.clean(text)
        if self.cjk:
            text = characters.CJK.sub(r" \g<0> ", text)
        if self.accents:
            text = characters.without_accents(text)
        return characters.lower(text) if self.lower else text


def read(section: dict[str, Any], normalizer: Any, pre_tokenizer: Any) -> WordPiece:
    """A file's `model` with its `normalizer` and `pre_tokenizer`; InputError for what is not BERT's."""
    refuse_unless(normalizer is None or kind_of(normalizer) == "BertNormalizer", "normalizer", kind_of(normalizer),
                  "BertNormalizer, or none")  # fmt: skip
    refuse_unless(kind_of(pre_tokenizer) == "BertPreTokenizer", "pre_tokenizer", kind_of(pre_tokenizer),
                  "BertPreTokenizer for a WordPiece vocabulary")  # fmt: skip
    return WordPiece(section, normalizer)
