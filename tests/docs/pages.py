"""The pages of the project, taken apart: their fenced blocks, and the commands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<info>.*)$")
TITLE = re.compile(r'title="([^"]+)"')
SHELL = ("bash", "console", "sh", "shell")
COMMENT = re.compile(r"(^|\s)#(\s.*)?$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line of text (from 1), its language, the file it is shown as, and its text."""

    line: int
    language: str
    title: str
    text: str

    def commands(self) -> Iterator[str]:
        """Each command on one line, without prompts and comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        for line in lines:
            command = " ".join(COMMENT.sub("", line.removeprefix("$ ")).split())
            if command:
                yield command


def all_pages() -> list[Path]:
    """README, CONTRIBUTING, those of the folders, and every Markdown file of the site."""
    front = ("README.md", "CONTRIBUTING.md", "tests/README.md", "artifacts/README.md", "deploy/README.md")
    return [*(ROOT / page for page in front), *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Fenced blocks in order; ValueError for a fence that nothing closes."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        match = FENCE.match(line)
        if start is None:
            if match:
                start, opened = number, match
            continue
        if match and match["ticks"].startswith(opened["ticks"]) and not match["info"].strip():
            indent = len(opened["indent"])
            info = opened["info"].strip()
            title = TITLE.search(info)
            text = "".join(f"{each[indent:]}\n" for each in lines[start + 1 : number])
            found.append(Block(start + 2, info.split(" ")[0], title[1] if title else "", text))
            start = None
    if start is not None:
        raise ValueError(f"{name(page)}:{start + 1}: a fence that nothing closes")
    return found


def commands(page: Path) -> list[str]:
    """Every command that a page shows, in order."""
    return [command for block in blocks(page) if block.language in SHELL for command in block.commands()]


def without_blocks(page: Path) -> list[str]:
    """The lines of a page, those of fenced blocks and of comments empty."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in blocks(page):
        for number in range(block.line - 2, block.line + block.text.count("\n")):
            lines[number] = ""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), "\n".join(lines), flags=re.DOTALL)
    return text.split("\n")
