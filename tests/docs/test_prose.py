"""How the pages read: one idea a sentence, at most 25 words; a front door that fits on a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, all_pages, blocks, name, sentences, without_blocks, words

MOST_WORDS = 25
LIMITS = {"README.md": 6000, "CONTRIBUTING.md": 4000}
MADE = {"docs/reference/zoo.md"}
"""Written whole by tests/zoo/matrix.py: notes that quote what converters say."""
GENERATED, END_OF_GENERATED = "<!-- generated", "<!-- end of generated"
"""Between these, a program writes out the code's own texts."""
NO_PROSE = re.compile(r"^\s*(\||#|!\[|:?-{3,}|\[[^\]]+\]:|\$\$|</?\w)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")


def paragraphs(page: Path) -> Iterator[str]:
    """Running text: the lines of a paragraph joined, an item of a list by itself."""
    gathered: list[str] = []
    made = False
    lines = page.read_text(encoding="utf-8").splitlines()
    for line, raw in zip([*without_blocks(page), ""], [*lines, ""], strict=True):
        made = (made or raw.startswith(GENERATED)) and not raw.startswith(END_OF_GENERATED)
        over = made or not line.strip() or NO_PROSE.match(line)
        if gathered and (over or ITEM.match(line)):
            yield " ".join(gathered)
            gathered = []
        if not over:
            gathered.append(ITEM.sub("", line).strip())


def too_long(page: Path) -> list[str]:
    return [
        f"{name(page)}: {words(sentence)} words: {sentence}"
        for paragraph in paragraphs(page)
        for sentence in sentences(paragraph)
        if words(sentence) > MOST_WORDS
    ]


@pytest.mark.parametrize("page", [page for page in all_pages() if name(page) not in MADE], ids=name)
def test_no_sentence_is_longer_than_25_words(page: Path) -> None:
    assert not too_long(page)


def test_a_long_sentence_is_seen() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    assert [words(each) for each in sentences(f"Short one. Then {long}. `a b c` ends it.")] == [2, 27, 3]
    assert list(sentences("An interval, e.g. that of [Tango](x.md), holds 1.5 points.")) == [
        "An interval, eg that of Tango, holds 1.5 points."
    ]
    assert next(paragraphs(ROOT / "docs" / "index.md")).startswith("edgekit takes a trained model")


@pytest.mark.parametrize(("page", "most_bytes"), LIMITS.items())
def test_the_front_door_is_short(page: str, most_bytes: int) -> None:
    assert (ROOT / page).stat().st_size <= most_bytes


@pytest.mark.parametrize("page", all_pages(), ids=name)
def test_every_fenced_block_says_what_it_is(page: Path) -> None:
    """Or a command could stand in one that no test reads."""
    assert not [block.line for block in blocks(page) if not block.language]
