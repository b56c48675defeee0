"""Build a WordPiece vocabulary from texts, as a `tokenizer.json`. The same texts give the same bytes on every machine.

The vocabulary starts with single characters, and the most frequent pair of adjacent pieces is merged again and again,
as in `WordPieceTrainer` of the library `tokenizers` (Sennrich et al. 2016). If several pairs are equally frequent, the
first in the order of code points is merged.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from edgekit.runner import tokenization

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""The special tokens. Their indices are their ids."""
CONTINUATION_PREFIX = "##"
MIN_PAIR_COUNT = 2
"""Smallest count of a pair that is merged, because merging a pair that occurs only once gains nothing."""
MAX_WORD_LENGTH = 100
Pair = tuple[str, str]


def train_vocabulary(texts: Iterable[str], size: int, *, lowercase: bool = True) -> bytes:
    """Return a `tokenizer.json` with at most `size` tokens."""
    empty = tokenization.read_tokenizer(_file(SPECIAL_TOKENS, lowercase))
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word in empty.words(text) if len(word) <= MAX_WORD_LENGTH)
    return _file(_tokens(counts, size), lowercase)


def _tokens(counts: Counter[str], size: int) -> list[str]:
    words = [[word[0], *(CONTINUATION_PREFIX + letter for letter in word[1:])] for word in sorted(counts)]
    word_counts = [counts[word] for word in sorted(counts)]
    letters: Counter[str] = Counter()
    for word, count in zip(words, word_counts, strict=True):
        for piece in word:
            letters[piece] += count
    ranked = sorted(letters, key=lambda piece: (-letters[piece], piece))
    tokens = [*SPECIAL_TOKENS, *sorted(ranked[: max(0, size - len(SPECIAL_TOKENS))])]
    token_set = set(tokens)
    for joined in _merged_pieces(words, word_counts):
        if len(tokens) >= size:
            break
        if joined not in token_set:
            tokens.append(joined)
            token_set.add(joined)
    return tokens


def _merged_pieces(words: list[list[str]], word_counts: list[int]) -> Iterable[str]:
    """Merge the most frequent pair again and again, and yield each new piece, until no pair occurs at least twice.

    `words` are modified in place.
    """
    pairs: Counter[Pair] = Counter()
    words_with_pair: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in zip(word, word[1:], strict=False):
            pairs[pair] += word_counts[number]
            words_with_pair[pair].add(number)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != pairs[pair]:
            continue  # the pair has become rarer, so the heap contains it a second time
        if -count < MIN_PAIR_COUNT:
            return
        merged = pair[0] + pair[1].removeprefix(CONTINUATION_PREFIX)
        yield merged
        changed: set[Pair] = set()
        for number in words_with_pair.pop(pair):
            changed |= _replace(words, number, pair, merged, word_counts[number], pairs, words_with_pair)
        for other in changed:
            if pairs[other] > 0:
                heapq.heappush(heap, (-pairs[other], other))


def _replace(
    words: list[list[str]],
    number: int,
    pair: Pair,
    merged: str,
    count: int,
    pairs: Counter[Pair],
    words_with_pair: defaultdict[Pair, set[int]],
) -> set[Pair]:
    """Merge the pair in one word, and return the pairs whose counts changed."""
    word = words[number]
    joined: list[str] = []
    index = 0
    while index < len(word):
        if tuple(word[index : index + 2]) == pair:
            joined.append(merged)
            index += 2
        else:
            joined.append(word[index])
            index += 1
    before, after = list(zip(word, word[1:], strict=False)), list(zip(joined, joined[1:], strict=False))
    for each in before:
        pairs[each] -= count
    for each in after:
        pairs[each] += count
        words_with_pair[each].add(number)
    for each in set(before) - set(after):
        words_with_pair[each].discard(number)
    words[number] = joined
    return {*before, *after}


def _file(tokens: Iterable[str], lowercase: bool) -> bytes:
    """Return the file of a vocabulary, in the format of the library `tokenizers`."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ends = {"before": "[CLS]", "behind": "[SEP]"}
    special = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in ends.values()}

    def single(kind: str, name: str) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": 0}}

    texts = [single("Sequence", "A")]
    before, behind = ([single("SpecialToken", ends[end])] for end in ("before", "behind"))
    second = {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": ends["behind"], "type_id": 1}}
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **flags} for number, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [*before, *texts, *behind],
            "pair": [*before, *texts, *behind, *second],
            "special_tokens": special,
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION_PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUATION_PREFIX,
            "max_input_chars_per_word": MAX_WORD_LENGTH,
            "vocab": vocabulary,
        },
    }
    return json.dumps(values, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"
