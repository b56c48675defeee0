"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a `|` or a line break inside a cell does not end the cell."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def code(value: object) -> str:
    """`value` as code."""
    return f"`{value}`"


def sentence(text: str) -> str:
    """With a capital and a full stop: descriptions in the code are written without."""
    text = text.strip()
    if not text:
        return ""
    is_word = text.split()[0].rstrip(",;:").replace("-", "").isalpha()
    return (text[0].upper() if is_word else text[0]) + text[1:] + ("" if text.endswith(".") else ".")


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
