"""Write `edgekit/runner/tokenization/unicode_tables.py` anew: `python -m tests.runner.tokenization.make_tables`.

Every table is asked of the library `tokenizers`, one character after another. `KNOWN` is asked of Python: it wants the
oldest one that the runner supports, 3.9, so that every other knows these characters too. Run on another Python, the
script keeps the `KNOWN` that is there.
"""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

PATH = Path(__file__).parents[3] / "edgekit" / "runner" / "tokenize" / "unicode_tables.py"
TITLE = '''"""Kinds of characters as ranges of code points in hex: what the library `tokenizers` takes them for.

Made by `python -m tests.runner.tokenization.make_tables`, and held against that library by `test_unicode.py`.
"""

from __future__ import annotations
'''
NOTES = {
    "WHITE": "White space between words, for BERT.",
    "CONTROL": "What BERT's normaliser leaves out.",
    "CJK": "Characters that are words by themselves.",
    "PUNCTUATION": "What BERT's pre-tokeniser sets apart.",
    "MARKS": "Accents that BERT's normaliser leaves out, once a character is in its parts.",
    "LETTERS": "Unicode's L, for GPT-2's words.",
    "NUMBERS": "Unicode's N, the same.",
    "SPACES": "White space, the same.",
    "KNOWN": "Characters of Unicode 13, which Python 3.9 knows: what Python is asked about.",
    "UNPARTED": "Those of them that the library, whose tables are older, knows neither parts nor an order of.",
    "LOWER": "Small letters of characters that are newer than that.",
}


def every() -> Iterable[int]:
    """All code points but the surrogates."""
    return (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)


def among(holds: Callable[[str], bool]) -> list[int]:
    """The code points of which it holds."""
    return [code for code in every() if holds(chr(code))]


def as_ranges(codes: Iterable[int]) -> str:
    """`9-d 20 85`."""
    found: list[list[int]] = []
    for code in codes:
        if found and code == found[-1][1] + 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in found)


def asked() -> dict[str, list[int]]:
    """All tables but KNOWN and LOWER, from the library."""
    from tokenizers import normalizers, pre_tokenizers

    def bert(**on: bool) -> normalizers.BertNormalizer:
        off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
        return normalizers.BertNormalizer(**{**off, **on})

    clean, cjk = bert(clean_text=True).normalize_str, bert(handle_chinese_chars=True).normalize_str
    accents, parts = bert(strip_accents=True).normalize_str, normalizers.NFD().normalize_str
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str

    def one_word(text: str) -> bool:
        return len(bytes_(text)) == 1

    def is_punctuation(letter: str) -> bool:
        return [word for word, _ in words(f"a{letter}b")] == ["a", letter, "b"]

    def is_space(letter: str) -> bool:
        return not any(one_word(first + letter) for first in "a1!") and one_word(f"{letter} ")

    return {
        "WHITE": among(lambda letter: [word for word, _ in words(f"a{letter}b")] == ["a", "b"]),
        "CONTROL": among(lambda letter: clean(f"a{letter}b") == "ab"),
        "CJK": among(lambda letter: cjk(letter) == f" {letter} "),
        "PUNCTUATION": among(is_punctuation),
        "MARKS": among(lambda letter: parts(letter) == letter and accents(f"a{letter}") == "a"),
        "LETTERS": among(lambda letter: one_word(f"a{letter}")),
        "NUMBERS": among(lambda letter: one_word(f"1{letter}")),
        "SPACES": among(is_space),
    }


def lower(known: set[int]) -> str:
    """`1c89>1c8a`, of characters outside `known` that the library makes small."""
    from tokenizers import normalizers

    small = normalizers.Lowercase().normalize_str
    pairs = [(code, small(chr(code))) for code in every() if code not in known]
    return " ".join(f"{code:x}>{ord(letter):x}" for code, letter in pairs if letter != chr(code))


def unparted(known: Iterable[int]) -> list[int]:
    """Of the known characters those whose parts, or whose order among marks, the library does not know."""
    from tokenizers import normalizers

    parts = normalizers.NFD().normalize_str
    found = []
    for code in known:
        letter = chr(code)
        if unicodedata.combining(letter) or unicodedata.decomposition(letter):
            marked = f"a\u0301{letter}\u0316\u0301{letter}"
            found += [code] if parts(marked) != unicodedata.normalize("NFD", marked) else []
    return found


def main() -> None:
    if sys.version_info[:2] == (3, 9):
        known = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    else:
        from edgekit.runner.tokenization import characters, unicode_tables

        known = [code for first, last in characters.ranges(unicode_tables.KNOWN) for code in range(first, last + 1)]
    tables = {name: as_ranges(codes) for name, codes in asked().items()}
    tables |= {"KNOWN": as_ranges(known), "UNPARTED": as_ranges(unparted(known)), "LOWER": lower(set(known))}
    text = TITLE
    for name, note in NOTES.items():
        lines = "\n".join(textwrap.wrap(tables[name], 116, break_on_hyphens=False))
        text += f'\n{name} = """\n{lines}\n"""\n"""{note}"""\n'
    PATH.write_text(text)


if __name__ == "__main__":
    main()
