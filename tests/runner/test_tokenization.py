"""The device's ids of a text: those of the library `tokenizers`, and of the reader that older runners had built in."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import pytest
from tokenizers import Tokenizer

from edgekit.data import vocabulary
from edgekit.runner import tokenization
from edgekit.runner.errors import InputError

from . import vocabularies

KINDS = {
    "BERT, uncased": vocabularies.wordpiece(),
    "BERT, accents kept": vocabularies.wordpiece(strip_accents=False),
    "BERT, not cleaned": vocabularies.wordpiece(clean_text=False, handle_chinese_chars=False),
    "GPT-2": vocabularies.bpe(),
    "GPT-2, a space before": vocabularies.bpe(prefix=True),
    "RoBERTa": vocabularies.bpe(roberta=True),
}
HANDMADE = {
    "BERT": (vocabulary.train_vocabulary(vocabularies.CORPUS * 3, 400), "75224c1fe12b1c70", "fcc4b4eae5499fb5"),
    "BERT, cased": (
        vocabulary.train_vocabulary(vocabularies.CORPUS * 3, 400, lowercase=False),
        "c6386b962fd0a9a9",
        "03e31c0c5f0e91b2",
    ),
    "RoBERTa": (vocabularies.handmade_bpe(), "5355b66f68958d26", "c3c5c1493f001df1"),
}
"""Vocabularies that no library's release changes: digests of the ids of 3,006 texts, whole and cut to 9."""


@pytest.mark.parametrize("kind", HANDMADE)
def test_ids_are_those_of_the_reader_that_older_runners_had_built_in(kind: str) -> None:
    content, whole, cut = HANDMADE[kind]
    tokenizer = tokenization.read_tokenizer(content)
    texts = [*vocabularies.CORPUS, "", " ", *vocabularies.texts(3000, seed=7)]

    def digest(most: int | None) -> str:
        ids = json.dumps([tokenizer.encode(text, most) for text in texts])
        return hashlib.sha256(ids.encode()).hexdigest()[:16]

    assert (digest(None), digest(9)) == (whole, cut)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [4, 9, 64])
def test_a_text_too_long_is_cut_as_the_library_cuts_it(kind: str, most: int) -> None:
    ours, theirs = tokenization.read_tokenizer(KINDS[kind]), Tokenizer.from_str(KINDS[kind].decode())
    texts = [*vocabularies.CORPUS, *vocabularies.texts(200, seed=2)]
    assert [ours.encode(text) for text in texts] == [theirs.encode(text).ids for text in texts]
    theirs.enable_truncation(most)
    assert [ours.encode(text, most) for text in texts] == [theirs.encode(text).ids for text in texts]


def test_size_and_padding_are_those_of_the_file() -> None:
    found = tokenization.read_tokenizer(KINDS["RoBERTa"])
    theirs = Tokenizer.from_str(KINDS["RoBERTa"].decode())
    assert (found.size, found.pad_id, found.special_tokens) == (theirs.get_vocab_size(), theirs.token_to_id("<pad>"), 2)
    padded = vocabularies.changed(
        KINDS["RoBERTa"],
        padding={"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 7,
                 "pad_type_id": 0, "pad_token": "<pad>"},
        truncation={"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0},
    )  # fmt: skip
    text = vocabularies.CORPUS[0]
    assert tokenization.read_tokenizer(padded).pad_id == 7
    assert tokenization.read_tokenizer(padded).encode(text) == found.encode(text), (
        "neither filled up nor cut by the file's own"
    )


@pytest.mark.parametrize(("kind", "expected"), [("BERT", "free entry"), ("RoBERTa", "Free entry")])
def test_ids_read_as_words(kind: str, expected: str) -> None:
    tokenizer = tokenization.read_tokenizer(HANDMADE[kind][0])
    assert tokenizer.readable(tokenizer.encode("Free entry")) == expected


def test_without_the_library_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError) as caught:
        tokenization.read_tokenizer(vocabularies.changed(BERT, version="without"))
    text = str(caught.value)
    assert f"{sys.executable} -m pip install tokenizers" in text and "edgerun doctor" in text and "\n" not in text


BERT, GPT = KINDS["BERT, uncased"], KINDS["GPT-2"]


def model(content: bytes, **options: Any) -> bytes:
    return vocabularies.changed(content, model={**json.loads(content)["model"], **options})


def added(**options: Any) -> bytes:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return vocabularies.changed(BERT, added_tokens=[{"id": 1, "content": "[UNK]", **usual, **options}])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "not JSON in UTF-8"),
        (b"[1, 2]", "it has no object 'model'"),
        (b"{" * 100_000, "not JSON"),
        (model(BERT, type="Unigram"), "got 'Unigram'; bundles support WordPiece and BPE"),
        (model(BERT, unk_token="nothing"), "unk_token: got 'nothing'"),
        (model(BERT, vocab={}), "no tokens"),
        (model(BERT, vocab={"[UNK]": -1}), "every id must be a whole number from 0"),
        (vocabularies.changed(BERT, normalizer={"type": "NFKC"}), "normalizer: got 'NFKC'"),
        (vocabularies.changed(BERT, pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer: got 'Whitespace'"),
        (vocabularies.changed(BERT, post_processor={"type": "Odd"}), "post_processor: got 'Odd'"),
        (vocabularies.changed(GPT, normalizer={"type": "NFC"}), "normalizer: got 'NFC'"),
        (vocabularies.changed(GPT, pre_tokenizer=None), "pre_tokenizer: got 'None'"),
        (
            vocabularies.changed(GPT, pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits"}]}),
            "pre_tokenizer: got 'Digits'",
        ),
        (model(GPT, dropout=0.1), "model.dropout: got '0.1'"),
        (model(GPT, byte_fallback=True), "model.byte_fallback"),
        (model(GPT, merges=[["a", "nowhere"]]), "`nowhere` out of vocabulary"),
        (model(GPT, vocab={"a": 0}, merges=[]), "has no token; a byte-level vocabulary has all 256"),
        (vocabularies.changed(BERT, added_tokens=[{"id": 1}]), "missing field `content`"),
        (
            vocabularies.changed(
                BERT, post_processor={"type": "BertProcessing", "cls": ["[CLS]", 9999], "sep": ["[SEP]", 3]}
            ),
            "post_processor: adds id 9999, which no token has",
        ),
        (added(id=2), "added_tokens[0]: got id 2, which belongs to another token"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        tokenization.read_tokenizer(content, "vocab/tokenizer.json")
    text = str(caught.value)
    assert text.startswith("vocab/tokenizer.json: ") and message in text and "\n" not in text
