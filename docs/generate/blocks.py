"""The generated parts of the pages, most of them in `docs/reference/`.

A page is written by hand. What is made from the code stands between two comments, of which the first names a function
of this folder and its arguments: `<!-- generated: options.section budget -->`. `python -m docs.generate` writes every
such block again. The pages are committed, so that they are read and reviewed without building the site;
`tests/docs/test_reference.py` fails on a block that is out of date.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGES = Path(__file__).parents[1]
COMMAND = "python -m docs.generate"
_BLOCK = re.compile(r"(<!-- generated: (?P<call>[\w. -]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def pages() -> list[Path]:
    """The pages that have generated parts."""
    return sorted(page for page in PAGES.rglob("*.md") if _BLOCK.search(page.read_text()))


def refreshed(text: str) -> str:
    """The page with every block made again."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{made(found['call'])}\n\n{found[3]}", text)


def made(call: str) -> str:
    """The Markdown that `module.function argument …` gives."""
    name, *arguments = call.split()
    module, function = name.split(".")
    text: str = getattr(importlib.import_module(f"{__package__}.{module}"), function)(*arguments)
    return text.strip("\n")


def write() -> list[Path]:
    """Write every page that is out of date; returns these."""
    stale = [page for page in pages() if refreshed(page.read_text()) != page.read_text()]
    for page in stale:
        page.write_text(refreshed(page.read_text()))
    return stale
