"""Ids depend on no Python's Unicode: the tables are the library's, and all Pythons make the same of every character."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from edgekit.runner.tokenization import characters, unicode_tables
from tests.matrix import pythons

from . import make_tables

pytestmark = pytest.mark.long  # minutes: every character on every Python

ROOT = Path(__file__).parents[3]
DIGEST = """
import hashlib, json
from edgekit.runner.tokenization import characters
sha = hashlib.sha256()
for code in range(0x110000):
    if not 0xD800 <= code < 0xE000:
        letter = chr(code)
        made = (characters.lower(letter), characters.parted(letter), characters.without_accents("a" + letter),
                characters.parted(letter + chr(0x316) + chr(0x301) + letter), characters.clean(letter),
                characters.WORDS_AND_PUNCTUATION.findall("a" + letter + "b"),
                characters.BYTE_LEVEL_WORDS.findall("a" + letter + "1" + letter + " "))
        sha.update(json.dumps(made).encode())
print(sha.hexdigest())
"""
OTHERS = tuple(version for version in pythons.VERSIONS if not sys.version.startswith(f"{version}."))


@pytest.mark.slow
def test_the_tables_are_what_the_library_says() -> None:
    for name, codes in make_tables.asked().items():
        assert make_tables.as_ranges(codes).split() == getattr(unicode_tables, name).split(), name


@pytest.mark.slow
def test_every_character_becomes_what_the_library_makes_of_it() -> None:
    from tokenizers import normalizers

    lower, parts = normalizers.Lowercase().normalize_str, normalizers.NFD().normalize_str
    for code in make_tables.every():
        letter = chr(code)
        assert characters.lower(letter) == lower(letter), hex(code)
        assert characters.parted(letter) == parts(letter), hex(code)
        marked = f"a\u0301{letter}\u0316\u0301{letter}"
        assert characters.parted(marked) == parts(marked), hex(code)


@cache
def digest(python: str) -> str:
    done = subprocess.run(
        [python, "-c", DIGEST], cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    return done.stdout


@pytest.mark.matrix
@pytest.mark.parametrize("version", OTHERS)
def test_another_python_makes_the_same_of_every_character(version: str) -> None:
    found = pythons.found()
    assert len(found) >= pythons.FEWEST, f"found Python {', '.join(found)}; install others, with pyenv for example"
    if version in found:
        assert digest(str(found[version])) == digest(sys.executable)


def test_the_tables_are_ascending_ranges() -> None:
    for name in make_tables.NOTES:
        if name != "LOWER":
            ends = [end for pair in characters.ranges(getattr(unicode_tables, name)) for end in pair]
            assert ends == sorted(ends) and ends
