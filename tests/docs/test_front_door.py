"""What the pages link to and name is there, and what the README promises of the runner's size holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgekit.core.floors import FLOORS
from tests.conftest import FinishedRun
from tests.docs.pages import ROOT, all_pages, name, without_blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = ("http:", "https:", "mailto:")
EXECUTED = re.compile(r"\b0\d_\w+\.md")
"""Pages that `make docs` makes of the executed notebooks."""
SCHEMA = re.compile(r"/\d+$")
PATH = re.compile(r"`((?:edgekit|tests|benchmarks|configs|notebooks|docs)/[\w./-]*\w/?|edgekit(?:\.\w+)+)`")


def anchors(page: Path) -> set[str]:
    """Of its headings, as the site makes them."""
    titles = [line.lstrip("#").strip() for line in without_blocks(page) if line.startswith("#")]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", all_pages(), ids=name)
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


def is_there(said: str) -> bool:
    """A path; or a module by its dots, or a name that its text has."""
    if "/" in said:
        return (ROOT / said).exists()
    path = ROOT / said.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    above = path.parent
    text = above / "__init__.py" if above.is_dir() else above.with_suffix(".py")
    return text.is_file() and re.search(rf"\b{path.name}\b", text.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("page", all_pages(), ids=name)
def test_every_file_and_module_that_is_named_is_there(page: Path) -> None:
    """A name in backticks that begins with one of the project's folders, and `NAME` in it for whatever is added."""
    named = PATH.findall("\n".join(without_blocks(page)))
    assert not [said for said in named if "NAME" not in said and not SCHEMA.search(said) and not is_there(said)]


@pytest.mark.parametrize("said", ["edgekit/core/nothing.py", "edgekit.core.nothing", "tests/nothing"])
def test_and_one_that_is_not_is_seen(said: str) -> None:
    assert not is_there(said)
    assert PATH.findall(f"see `{said}`") == [said]


def test_the_page_of_the_architecture_lists_the_floors() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `edgekit/(\w+)/` \|", (ROOT / "docs/explanation/architecture.md").read_text(), re.M
    )
    floors = [(str(number), package) for number, floor in enumerate(FLOORS, 1) for package in floor]
    assert sorted(rows) == sorted(floors)
    assert [int(number) for number, _ in rows] == sorted((int(number) for number, _ in rows), reverse=True)


def test_every_page_of_the_how_to_is_named_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "how-to").glob("*.md")}
    assert not [page for page in pages if f"]({page})" not in text]


def test_the_runner_is_as_small_as_the_readme_says(tiny_run: FinishedRun) -> None:
    said = re.search(r"a runner of about (\d+) kB", (ROOT / "README.md").read_text())
    assert said
    found = (tiny_run.folder / "bundles" / "edgerun.pyz").stat().st_size / 1000
    assert abs(found - int(said[1])) < 0.1 * found
