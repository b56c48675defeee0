"""Texts in a folder or a zip."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import load, parse, vocabulary
from edgekit.runner import tokenization

WORDS = {"ham": "home dinner tomorrow love see you later work", "spam": "win free prize call now cash urgent claim"}


def texts(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(class, text), each text different."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        name = "spam" if number % 3 == 0 else "ham"
        found.append((name, " ".join([f"no{number}", *draw.choices(WORDS[name].split(), k=draw.randrange(3, 12))])))
    return found


def folder(home: Path, count: int = 90) -> Path:
    for number, (name, text) in enumerate(texts(count)):
        path = home / "train" / name / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


def vocabulary_file(tmp_path: Path) -> str:
    """A vocabulary of these texts: one that is built from the train split changes with the split."""
    path = tmp_path / "given.json"
    path.write_bytes(vocabulary.train_vocabulary([text for _, text in texts(90)], 90))
    return str(path)


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    home = folder(tmp_path / "texts")
    return {"path": str(home), "tokens": 16, "tokenizer": vocabulary_file(tmp_path), "calibration_samples": 6}


def config(tmp_path: Path, **options: object) -> dict[str, object]:
    home = folder(tmp_path / "texts")
    usual = {"source": "text_folder", "path": str(home), "tokens": 16, "vocabulary": 120, "calibration_samples": 6}
    return {**usual, **options}


def test_a_sample_is_the_ids_of_a_text_by_the_vocabulary_that_travels_along(tmp_path: Path) -> None:
    data = load(parse(config(tmp_path)))
    tokenizer = tokenization.read_tokenizer(data.members["tokenizer.json"])
    assert (data.kind, data.raw_shape, data.raw_dtype, data.classes) == ("text", (16,), "int32", ("ham", "spam"))
    assert data.raw_range == [0, tokenizer.size - 1] and tokenizer.size <= 120
    known = {tuple(row) for split in (data.train, data.calibration, data.validation, data.test) for row in split.x}
    for _, text in texts(90):
        ids = tokenizer.encode(text, 16)
        assert tuple(ids + [tokenizer.pad_id] * (16 - len(ids))) in known


def test_the_vocabulary_is_made_of_the_train_split_alone(tmp_path: Path) -> None:
    """A word that stands in validation and test only is not in it, though its letters are."""
    home = folder(tmp_path / "texts")
    for split in ("validation", "test"):
        for number, (name, text) in enumerate(texts(30, seed=5)):
            path = home / split / name / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{split} {text} zebra zebra", encoding="utf-8")
    data = load(parse({"source": "text_folder", "path": str(home), "tokens": 24, "vocabulary": 1000,
                       "calibration_samples": 6}))  # fmt: skip
    tokens = tokenization.read_tokenizer(data.members["tokenizer.json"]).vocabulary
    assert "dinner" in tokens and "prize" in tokens
    assert "zebra" not in tokens and "##ebra" not in tokens


def test_a_divided_pool_gives_a_vocabulary_of_what_is_trained_on(tmp_path: Path) -> None:
    data = load(parse(config(tmp_path)))
    tokenizer = tokenization.read_tokenizer(data.members["tokenizer.json"])
    trained = {tuple(row) for split in (data.train, data.calibration) for row in split.x}

    def sample(text: str) -> tuple[int, ...]:
        ids = tokenizer.encode(text, 16)
        return tuple(ids + [0] * (16 - len(ids)))

    own = [text for _, text in texts(90) if sample(text) in trained]
    assert 50 < len(own) < 80
    assert vocabulary.train_vocabulary(own, 120) == data.members["tokenizer.json"]
    assert any(f"built from the {len(own)} texts of train" in note for note in data.notes)


def test_a_vocabulary_of_the_users_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(vocabulary.train_vocabulary([text for _, text in texts(90)], 90))
    data = load(parse(config(tmp_path, tokenizer=str(path))))
    assert data.members["tokenizer.json"] == path.read_bytes()
    path.write_bytes(vocabulary.train_vocabulary([text for _, text in texts(90)], 80))
    assert load(parse(config(tmp_path, tokenizer=str(path)))).digest != data.digest


def test_long_texts_are_cut_and_counted_or_refused_by_name(tmp_path: Path) -> None:
    data = load(parse(config(tmp_path, tokens=8, overlap="drop")))
    assert any("are longer than data.tokens and are cut" in note for note in data.notes)
    with pytest.raises(DataError, match=r"\.txt: \d+ tokens, but the bundle takes 8; .*set data.too_long: cut"):
        load(parse(config(tmp_path, tokens=8, too_long="refuse")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"caf\xe9", r"bad.txt: not text in UTF-8 \(byte 3\); save it in UTF-8"),
        (b"a" * (1 << 21), "more than 1,048,576"),
    ],
)
def test_a_file_that_is_no_text_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    options = config(tmp_path)
    (tmp_path / "texts" / "train" / "ham" / "bad.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(parse(options))


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("{}")
    with pytest.raises(DataError, match="data.tokenizer: not a tokenizer.json"):
        load(parse(config(tmp_path, tokenizer=str(path))))


def test_so_few_tokens_that_none_is_left_for_the_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data.tokens: got 2"):
        parse(config(tmp_path, tokens=2))


def test_the_same_texts_give_the_same_vocabulary_and_its_words_are_the_frequent_ones(tmp_path: Path) -> None:
    corpus = [text for _, text in texts(60)]
    made = vocabulary.train_vocabulary(corpus, 150)
    assert made == vocabulary.train_vocabulary(corpus, 150) != vocabulary.train_vocabulary(corpus, 80)
    tokenizer = tokenization.read_tokenizer(made)
    assert {"win", "free", "prize", "dinner"} <= set(tokenizer.vocabulary)
    assert np.array_equal(sorted(tokenizer.vocabulary.values()), np.arange(tokenizer.size))


def test_a_vocabulary_that_is_made_is_one_of_the_library_too() -> None:
    from tokenizers import Tokenizer

    from tests.runner import vocabularies

    for lowercase in (True, False):
        made = vocabulary.train_vocabulary(
            [text for _, text in texts(60)] + vocabularies.CORPUS, 400, lowercase=lowercase
        )
        ours, theirs = tokenization.read_tokenizer(made), Tokenizer.from_str(made.decode())
        for text in (*vocabularies.CORPUS, *vocabularies.texts(300, seed=9)):
            assert ours.encode(text) == theirs.encode(text).ids
