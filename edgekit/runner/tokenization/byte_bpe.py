"""GPT-2's byte-level BPE: the bytes of each word, joined pair by pair in the order that the vocabulary was made in.

Radford et al. 2019 and Sennrich et al. 2016, as the library `tokenizers` does it: ByteLevel and BPE.
"""

from __future__ import annotations

import heapq
from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.tokenization import characters
from edgekit.runner.tokenization.parts import flat, kind_of, refuse_unless, vocabulary_of

MOST_REMEMBERED = 50_000
LONGEST_REMEMBERED = 64
"""Characters of a word whose ids are kept."""
Pair = tuple[int, int]


def _symbols() -> dict[int, str]:
    """The printable character that stands for each byte in a vocabulary: itself, or one from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + place) for place, byte in enumerate(others)}}


SYMBOLS = _symbols()
BYTES = {symbol: byte for byte, symbol in SYMBOLS.items()}


class ByteBpe:
    """An opened vocabulary."""

    def __init__(self, section: dict[str, Any], add_prefix_space: bool, use_regex: bool) -> None:
        self.vocabulary = vocabulary_of(section.get("vocab"))
        lacking = [byte for byte, symbol in SYMBOLS.items() if symbol not in self.vocabulary]
        if lacking:
            raise InputError(f"model.vocab: byte {lacking[0]} has no token; a byte-level vocabulary has all 256")
        self._bytes = [self.vocabulary[SYMBOLS[byte]] for byte in range(256)]
        self._merges = _merges(section.get("merges"), self.vocabulary)
        self._whole_first = bool(section.get("ignore_merges"))
        self._add_prefix_space, self._use_regex = add_prefix_space, use_regex
        self._remembered: dict[str, list[int]] = {}

    def normalize(self, text: str) -> str:
        """The text as it is."""
        return text

    def encode(self, normalized: str) -> list[int]:
        """The ids of a text's words, each with the space before it."""
        if self._add_prefix_space and normalized and not normalized.startswith(" "):
            normalized = f" {normalized}"
        ids: list[int] = []
        for word in characters.BYTE_LEVEL_WORDS.findall(normalized) if self._use_regex else [normalized]:
            found = self._remembered.get(word)
            if found is None:
                found = self._word(word)
                if len(word) <= LONGEST_REMEMBERED and len(self._remembered) < MOST_REMEMBERED:
                    self._remembered[word] = found
            ids += found
        return ids

    def joined(self, tokens: list[str]) -> str:
        """The text that the tokens stand for."""
        content = bytes(BYTES[symbol] for symbol in "".join(tokens) if symbol in BYTES)
        return content.decode("utf-8", "replace")

    def _word(self, word: str) -> list[int]:
        content = word.encode("utf-8")
        if self._whole_first:
            whole = self.vocabulary.get("".join(SYMBOLS[byte] for byte in content))
            if whole is not None:
                return [whole]
        return _joined([self._bytes[byte] for byte in content], self._merges)


def _joined(ids: list[int], merges: dict[Pair, Pair]) -> list[int]:
    """Pairs become one, the earliest rank first and of equals the leftmost, until none is left."""
    behind = [*range(1, len(ids)), -1]
    before = list(range(-1, len(ids) - 1))
    waiting: list[tuple[int, int, int]] = []

    def look(place: int) -> None:
        found = merges.get((ids[place], ids[behind[place]]))
        if found:
            heapq.heappush(waiting, (found[0], place, found[1]))

    for place in range(len(ids) - 1):
        look(place)
    while waiting:
        _, place, made = heapq.heappop(waiting)
        if ids[place] < 0 or behind[place] < 0:
            continue
        right = behind[place]
        found = merges.get((ids[place], ids[right]))
        if not found or found[1] != made:
            continue  # one of the two became something else meanwhile
        ids[place], ids[right] = made, -1
        behind[place] = behind[right]
        if behind[place] >= 0:
            before[behind[place]] = place
            look(place)
        if before[place] >= 0:
            look(before[place])
    return [each for each in ids if each >= 0]


def _merges(section: Any, vocabulary: dict[str, int]) -> dict[Pair, Pair]:
    """By pair of ids: its rank, and the id of what the two become."""
    if not isinstance(section, list):
        raise InputError("model.merges: must be a list")
    found: dict[Pair, Pair] = {}
    for rank, merge in enumerate(section):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise InputError(f"model.merges[{rank}]: got {str(merge)[:80]!r}; it must be two tokens")
        unknown = [part for part in (*pair, "".join(pair)) if part not in vocabulary]
        if unknown:
            raise InputError(f"model.merges[{rank}]: {unknown[0][:80]!r} is not in the vocabulary")
        left, right = pair
        found[vocabulary[left], vocabulary[right]] = (rank, vocabulary[left + right])
    return found


def read(section: dict[str, Any], normalizer: Any, pre_tokenizer: Any) -> ByteBpe:
    """A file's `model` with its `normalizer` and `pre_tokenizer`; InputError for what is not GPT-2's."""
    refuse_unless(normalizer is None, "normalizer", kind_of(normalizer), "none for a BPE vocabulary")
    parts = flat(pre_tokenizer, "pretokenizers")
    refuse_unless(len(parts) == 1 and kind_of(parts[0]) == "ByteLevel", "pre_tokenizer", pre_tokenizer,
                  "ByteLevel for a BPE vocabulary")  # fmt: skip
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        refuse_unless(not section.get(option), f"model.{option}", section.get(option), "none")
    options = parts[0]
    return ByteBpe(section, bool(options.get("add_prefix_space", True)), bool(options.get("use_regex", True)))
