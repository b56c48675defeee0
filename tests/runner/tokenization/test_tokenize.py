"""The device's reader of a tokenizer.json gives the ids of the library `tokenizers`, or says what it does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from edgekit.runner import tokenization
from edgekit.runner.errors import InputError

from . import vocabularies

KINDS = {
    "BERT, uncased": vocabularies.wordpiece(),
    "BERT, cased": vocabularies.wordpiece(lowercase=False),
    "BERT, accents kept": vocabularies.wordpiece(strip_accents=False),
    "BERT, not cleaned": vocabularies.wordpiece(clean_text=False, handle_chinese_chars=False),
    "GPT-2": vocabularies.bpe(),
    "GPT-2, a space before": vocabularies.bpe(prefix=True),
    "RoBERTa": vocabularies.bpe(roberta=True),
    "RoBERTa, a space before": vocabularies.bpe(prefix=True, roberta=True),
}
FUZZED = 3000


@pytest.mark.parametrize("kind", KINDS)
def test_random_texts_of_every_plane_get_the_librarys_ids(kind: str) -> None:
    ours, theirs = tokenization.read(KINDS[kind]), Tokenizer.from_str(KINDS[kind].decode())
    texts = [*vocabularies.CORPUS, "", " ", *vocabularies.texts(FUZZED)]
    wrong = [text for text in texts if ours.encode(text) != theirs.encode(text).ids]
    assert not wrong, [(text, ours.encode(text), theirs.encode(text).ids) for text in wrong[:3]]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_hypothesis_makes_get_the_librarys_ids(kind: str) -> None:
    ours, theirs = tokenization.read(KINDS[kind]), Tokenizer.from_str(KINDS[kind].decode())

    @settings(max_examples=300, deadline=None, database=None)
    @given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
    def alike(text: str) -> None:
        assert ours.encode(text) == theirs.encode(text).ids

    alike()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [4, 9, 64])
def test_a_text_too_long_is_cut_as_the_library_cuts_it(kind: str, most: int) -> None:
    ours, theirs = tokenization.read(KINDS[kind]), Tokenizer.from_str(KINDS[kind].decode())
    theirs.enable_truncation(most)
    for text in (*vocabularies.CORPUS, *vocabularies.texts(200, seed=2)):
        assert ours.encode(text, most) == theirs.encode(text).ids


def test_size_and_padding_are_those_of_the_file() -> None:
    found = tokenization.read(KINDS["RoBERTa"])
    theirs = Tokenizer.from_str(KINDS["RoBERTa"].decode())
    assert (found.size, found.pad_id, found.least) == (theirs.get_vocab_size(), theirs.token_to_id("<pad>"), 2)
    assert tokenization.read(vocabularies.changed(KINDS["RoBERTa"], padding={"pad_id": 7})).pad_id == 7


BERT, GPT = KINDS["BERT, uncased"], KINDS["GPT-2"]


def model(content: bytes, **options: Any) -> bytes:
    return vocabularies.changed(content, model={**json.loads(content)["model"], **options})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "no JSON in UTF-8"),
        (b"[1, 2]", "it has no object 'model'"),
        (b"{" * 100_000, "no JSON"),
        (model(BERT, type="Unigram"), "got 'Unigram'; this reader knows WordPiece and BPE"),
        (model(BERT, unk_token="nothing"), "unk_token: got 'nothing'"),
        (model(BERT, vocab={}), "no tokens"),
        (model(BERT, vocab={"[UNK]": -1}), "every id must be a whole number from 0"),
        (vocabularies.changed(BERT, normalizer={"type": "NFKC"}), "normalizer: got 'NFKC'"),
        (vocabularies.changed(BERT, pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer: got 'Whitespace'"),
        (vocabularies.changed(BERT, post_processor={"type": "Odd"}), "post_processor: got 'Odd'"),
        (vocabularies.changed(GPT, normalizer={"type": "NFC"}), "normalizer: got 'NFC'"),
        (model(GPT, dropout=0.1), "model.dropout: got '0.1'"),
        (model(GPT, byte_fallback=True), "model.byte_fallback"),
        (model(GPT, merges=[["a", "nowhere"]]), "'nowhere' is not in the vocabulary"),
        (model(GPT, vocab={"a": 0}), "has no token; a byte-level vocabulary has all 256"),
        (vocabularies.changed(BERT, added_tokens=[{"id": 1}]), "it needs an id and a content"),
        (
            vocabularies.changed(BERT, added_tokens=[{"id": 1, "content": "x", "single_word": True}]),
            "single_word: got 'True'",
        ),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(content: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        tokenization.read(content, "vocab/tokenizer.json")
    text = str(caught.value)
    assert text.startswith("vocab/tokenizer.json: ") and said in text and "\n" not in text
