"""README and CONTRIBUTING: what they link to is there, and what the README promises of the runner's size holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import FinishedRun
from tests.docs.pages import ROOT, all_pages, name, without_blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = ("http:", "https:", "mailto:")
PATH = re.compile(r"`((?:edgekit|tests|benchmarks|configs|notebooks|docs)/[\w./-]*\w/?|edgekit(?:\.\w+)+)`")


def anchors(page: Path) -> set[str]:
    """Of its headings, as the site makes them."""
    titles = [line.lstrip("#").strip() for line in without_blocks(page) if line.startswith("#")]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", all_pages(), ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall("\n".join(without_blocks(page))):
        if target.startswith(ELSEWHERE):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists():
            lost.append(target)
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            lost.append(target)
    assert not lost


@pytest.mark.parametrize("page", all_pages(), ids=name)
def test_every_file_and_module_that_is_named_is_there(page: Path) -> None:
    """A name in backticks that begins with one of the project's folders, and `NAME` in it for whatever is added."""
    missing = []
    for found in PATH.findall("\n".join(without_blocks(page))):
        if "NAME" in found or ".." in found:
            continue
        path = ROOT / (found if "/" in found else found.replace(".", "/"))
        if not any(each.exists() for each in (path, path.with_suffix(".py"), path.parent, path.parent.with_suffix(".py"))):
            missing.append(found)
        elif "/" in found and not path.exists():
            missing.append(found)
    assert not missing


def test_the_runner_is_as_small_as_the_readme_says(tiny_run: FinishedRun) -> None:
    said = re.search(r"a runner of about (\d+) kB", (ROOT / "README.md").read_text())
    assert said
    found = (tiny_run.folder / "bundles" / "edgerun.pyz").stat().st_size / 1000
    assert abs(found - int(said[1])) < 0.1 * found
