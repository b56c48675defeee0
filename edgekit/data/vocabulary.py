"""A WordPiece vocabulary made of texts, as a `tokenizer.json`: the same texts give the same bytes, on every machine.

It starts from single characters, and joins the pair of pieces that stands side by side most often, again and again, as
`WordPieceTrainer` of the library `tokenizers` does (Sennrich et al. 2016). Of pairs that are as frequent, the first in
the order of their code points is joined.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from edgekit.runner import tokenization

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""Their places are their ids."""
CONTINUATION_PREFIX = "##"
MIN_PAIR_COUNT = 2
"""A pair that stands once is no piece of anything else."""
MAX_WORD_LENGTH = 100
Pair = tuple[str, str]


def train_vocabulary(texts: Iterable[str], size: int, *, lowercase: bool = True) -> bytes:
    """A `tokenizer.json` of at most `size` tokens."""
    empty = tokenization.read_tokenizer(_file(SPECIAL_TOKENS, lowercase))
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word in empty.words(text) if len(word) <= MAX_WORD_LENGTH)
    return _file(_tokens(counts, size), lowercase)


def _tokens(counts: Counter[str], size: int) -> list[str]:
    words = [[word[0], *(CONTINUATION_PREFIX + letter for letter in word[1:])] for word in sorted(counts)]
    often = [counts[word] for word in sorted(counts)]
    letters: Counter[str] = Counter()
    for word, count in zip(words, often, strict=True):
        for piece in word:
            letters[piece] += count
    ranked = sorted(letters, key=lambda piece: (-letters[piece], piece))
    tokens = [*SPECIAL_TOKENS, *sorted(ranked[: max(0, size - len(SPECIAL_TOKENS))])]
    known = set(tokens)
    for joined in _joined(words, often):
        if len(tokens) >= size:
            break
        if joined not in known:
            tokens.append(joined)
            known.add(joined)
    return tokens


def _joined(words: list[list[str]], often: list[int]) -> Iterable[str]:
    """Piece by piece what the most frequent pair becomes, while one stands twice; `words` change on the way."""
    pairs: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in zip(word, word[1:], strict=False):
            pairs[pair] += often[number]
            where[pair].add(number)
    waiting = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(waiting)
    while waiting:
        count, pair = heapq.heappop(waiting)
        if -count != pairs[pair]:
            continue  # it has become rarer meanwhile, and stands further back as well
        if -count < MIN_PAIR_COUNT:
            return
        made = pair[0] + pair[1].removeprefix(CONTINUATION_PREFIX)
        yield made
        changed: set[Pair] = set()
        for number in where.pop(pair):
            changed |= _replace(words, number, pair, made, often[number], pairs, where)
        for other in changed:
            if pairs[other] > 0:
                heapq.heappush(waiting, (-pairs[other], other))


def _replace(
    words: list[list[str]],
    number: int,
    pair: Pair,
    made: str,
    count: int,
    pairs: Counter[Pair],
    where: defaultdict[Pair, set[int]],
) -> set[Pair]:
    """Join the pair in one word; the pairs whose counts changed."""
    word = words[number]
    joined: list[str] = []
    place = 0
    while place < len(word):
        if tuple(word[place : place + 2]) == pair:
            joined.append(made)
            place += 2
        else:
            joined.append(word[place])
            place += 1
    before, after = list(zip(word, word[1:], strict=False)), list(zip(joined, joined[1:], strict=False))
    for each in before:
        pairs[each] -= count
    for each in after:
        pairs[each] += count
        where[each].add(number)
    for each in set(before) - set(after):
        where[each].discard(number)
    words[number] = joined
    return {*before, *after}


def _file(tokens: Iterable[str], lowercase: bool) -> bytes:
    """The file of a vocabulary, as the library `tokenizers` reads it too."""
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
