"""Every link of README, CONTRIBUTING, CHANGELOG, llms.txt and the pages leads to something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, all_pages, name, without_blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = ("http:", "https:", "mailto:")
EXECUTED = re.compile(r"\b0\d_\w+\.md")
"""Pages that `make docs` makes of the executed notebooks."""
LINKED = [*all_pages(), ROOT / "CHANGELOG.md", ROOT / "docs" / "llms.txt"]


def anchors(page: Path) -> set[str]:
    """Of its headings, as the site makes them."""
    titles = [line.lstrip("#").strip() for line in without_blocks(page) if line.startswith("#")]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall("\n".join(without_blocks(page))):
        if target.startswith(ELSEWHERE) or EXECUTED.search(target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            lost.append(target)
    assert not lost
