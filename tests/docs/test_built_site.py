"""The site as `make docs` has built it: it fetches nothing from elsewhere, no picture is missing, no page overflows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests import requirements
from tests.conftest import ROOT
from tests.report.html.browser import Browser

pytestmark = pytest.mark.docs
SITE = Path(os.environ.get("EDGEKIT_SITE", ROOT / "build" / "site"))
FETCHED = {
    "img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src", "object": "data",
}  # fmt: skip
NO_FETCH = {"canonical", "next", "prev", "edit", "alternate"}
WIDTHS = (1300, 420)
SEEN = (
    "index.html", "tutorials/digits.html", "reference/config.html", "reference/command-line.html",
    "reference/result.html", "reference/zoo.html", "notebooks/01_profile.html", "notebooks/06_benchmark.html",
)  # fmt: skip


class Fetches(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of every tag that is fetched, and those in styles."""
        given = dict(attrs)
        address = given.get(FETCHED.get(tag, ""))
        if address and not (tag == "link" and given.get("rel") in NO_FETCH):
            self.addresses.append(address)
        self.addresses += re.findall(r"url\(['\"]?([^'\")]+)", given.get("style") or "")


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    assert len(found) > 30, "run make docs"
    return found


def fetched(page: Path) -> list[str]:
    parser = Fetches()
    parser.feed(page.read_text())
    return parser.addresses


def test_nothing_is_fetched_from_elsewhere(pages: list[Path]) -> None:
    styles = [
        address for sheet in SITE.rglob("*.css") for address in re.findall(r"url\(['\"]?([^'\")]+)", sheet.read_text())
    ]
    imports = [line for sheet in SITE.rglob("*.css") for line in re.findall(r"@import[^;]*", sheet.read_text())]
    addresses = [address for page in pages for address in fetched(page)]
    assert len(addresses) > len(pages)
    assert not [address for address in (*addresses, *styles) if urlsplit(address).netloc]
    assert not imports


def test_everything_that_is_fetched_is_there(pages: list[Path]) -> None:
    missing = set()
    for page in pages:
        for address in fetched(page):
            path = unquote(urlsplit(address).path)
            file = SITE / path.lstrip("/") if path.startswith("/") else page.parent / path
            if path and urlsplit(address).scheme != "data" and not file.is_file():
                missing.add(f"{page.relative_to(SITE)}: {address}")
    assert not missing


def test_every_notebook_has_its_pictures(pages: list[Path]) -> None:
    made = [page for page in pages if page.parent.name == "notebooks" and page.stem != "index"]
    assert [page.stem for page in made] == sorted(path.stem for path in (ROOT / "notebooks").glob("0[1-7]*.ipynb"))
    for page in made:
        assert re.search(r"<img [^>]*src=\"" + page.stem, page.read_text()), f"{page.stem}: no picture"


def test_no_path_of_the_builder_is_shown(pages: list[Path]) -> None:
    places_of_builder = {str(ROOT), str(Path.home())} - {"/", "/root"}
    assert not [page.name for page in pages for place in places_of_builder if place in page.read_text()]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser.start(requirements.program("chromium"), tmp_path_factory.mktemp("profile"))
    yield opened
    opened.stop()


@pytest.mark.parametrize("name", SEEN)
def test_a_page_fits_its_window_and_asks_nobody(browser: Browser, name: str) -> None:
    for width in WIDTHS:
        browser.open(SITE / name, width=width, dark=False)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        outside = [one for one in browser.requested if not one.startswith(("file:", "data:", "blob:"))]
        assert not outside
        assert not browser.complaints
