"""The page in a real browser: wide and narrow, light and dark, and on paper, without hidden content or errors."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from edgekit.report import html
from tests.conftest import FinishedRun
from tests.report.html.browser import Browser

pytestmark = pytest.mark.long

WIDTHS = (1280, 400)
SCROLL_BAR = 20
LEAST_CONTRAST = 4.5
"""Of small text, WCAG 2.1, 1.4.3."""

CONTRASTS = """(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = numbers(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const weak = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !one.checkVisibility()) continue;
    const [a, b] = [light(numbers(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    seen += 1;
    if (ratio < LEAST) weak.push(`${ratio.toFixed(2)} ${one.tagName}.${one.className}: ${text.slice(0, 40)}`);
  }
  return {seen, weak};
})()""".replace("LEAST", str(LEAST_CONTRAST))

CUT_OFF = """[...document.querySelectorAll('h1, h2, p, li, dt, dd, figcaption, summary, .facts strong')]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
  .map((one) => one.textContent.slice(0, 60))"""

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
"""Not `innerWidth`, which on a phone grows with what is too wide."""
SCROLLED = """(one) => {
  for (one = one.parentElement; one !== document.body; one = one.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(one).overflowX)) return true;
  return false;
}"""
OUTSIDE = f"""[...document.querySelectorAll('body *')].filter((one) => one.checkVisibility()
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !({SCROLLED})(one))
  .map((one) => one.tagName + '.' + one.className)"""
"""What reaches beyond the window, but for what one can scroll to where it stands."""
HIDDEN = """[...document.querySelectorAll('body *')].filter((one) => one.checkVisibility()
  && ['hidden', 'clip'].includes(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.tagName + '.' + one.className)"""


def brightness(png: bytes) -> float:
    """Of the corner of the page, outside of all figures; 0 black, 1 white."""
    corner = Image.open(io.BytesIO(png)).convert("L").crop((0, 0, 8, 8))
    return sum(corner.tobytes()) / (255 * 64)


def looked_at(browser: Browser, path: Path, width: int, dark: bool, shot: Path) -> None:
    """Everything that must hold of any page of ours at that width and in that light."""
    browser.open(path, width=width, dark=dark)
    assert browser.complaints == []
    foreign = [url for url in browser.requested if url != path.absolute().as_uri() and not url.startswith("data:")]
    assert foreign == []
    assert browser.ask(FITS)
    assert browser.ask(OUTSIDE) == []
    assert browser.ask(HIDDEN) == []
    assert browser.ask(CUT_OFF) == []
    assert browser.ask("[...document.images].every((one) => one.complete && one.naturalWidth > 50)")
    contrasts = browser.ask(CONTRASTS)
    assert contrasts["seen"] > 20
    assert contrasts["weak"] == []
    png = browser.picture(shot)
    assert brightness(png) < 0.2 if dark else brightness(png) > 0.9
    picture = Image.open(io.BytesIO(png))
    assert width - SCROLL_BAR <= picture.width <= width
    assert picture.height > 1500  # from top to end


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_reads_well(width: int, dark: bool, browser: Browser, tiny_run: FinishedRun, tmp_path: Path) -> None:
    looked_at(browser, html.write_page(tiny_run.folder), width, dark, tmp_path / "shot.png")
    sheets = "[...document.querySelectorAll('.sheet')].map((one) => getComputedStyle(one).backgroundColor)"
    assert set(browser.ask(sheets)) == {"rgb(255, 255, 255)"}  # figures are drawn for white
    letters = "[...document.images].map((one) => one.getBoundingClientRect().width / one.naturalWidth)"
    assert min(browser.ask(letters)) > 0.75  # of 8 points at least 6 are left


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_the_report_of_a_missed_budget_reads_well(
    width: int, dark: bool, browser: Browser, missed: Path, tmp_path: Path
) -> None:
    looked_at(browser, missed / html.PAGE, width, dark, tmp_path / "shot.png")


@pytest.mark.parametrize(("number", "dark"), [("02_distill", True), ("04_quantize", False)], ids=["dark", "light"])
def test_a_notebooks_page_reads_well(
    number: str, dark: bool, browser: Browser, tiny_run: FinishedRun, tmp_path: Path
) -> None:
    html.write_page(tiny_run.folder)
    looked_at(browser, tiny_run.folder / html.NOTEBOOK_FOLDER / f"{number}.html", 400, dark, tmp_path / "shot.png")


def test_nothing_in_any_notebook_reaches_beyond_a_narrow_window(browser: Browser, tiny_run: FinishedRun) -> None:
    html.write_page(tiny_run.folder)
    for path in sorted((tiny_run.folder / html.NOTEBOOK_FOLDER).glob("*.html")):
        browser.open(path, width=400, dark=False)
        assert browser.complaints == []
        assert browser.ask(FITS), path.name
        assert (browser.ask(OUTSIDE), browser.ask(HIDDEN), browser.ask(CUT_OFF)) == ([], [], []), path.name
    wide = '<b style="display: block; width: 900px">wide</b>'
    browser.ask(f"document.querySelector('.cell').insertAdjacentHTML('beforeend', '{wide}')")
    assert browser.ask(OUTSIDE) == ["B."]  # or the looks above would see nothing
    assert not browser.ask(FITS)


WIDER = """[...document.querySelectorAll('table')].filter((one) => {
  let room = one.parentElement;
  while (!['auto', 'scroll'].includes(getComputedStyle(room).overflowX) && room !== document.body)
    room = room.parentElement;
  return room.scrollWidth > room.clientWidth + 1;
}).map((one) => one.rows[0].textContent.trim().replace(/\\s+/g, ' '))"""
"""Tables of which one sees a part only, until one scrolls."""


def test_no_table_runs_off_a_laptops_window(browser: Browser, tiny_run: FinishedRun) -> None:
    html.write_page(tiny_run.folder)
    for path in [tiny_run.folder / html.PAGE, *sorted((tiny_run.folder / html.NOTEBOOK_FOLDER).glob("*.html"))]:
        browser.open(path, width=1200, dark=False)
        assert browser.ask(WIDER) == [], path.name
    browser.open(tiny_run.folder / html.NOTEBOOK_FOLDER / "06_benchmark.html", width=400, dark=False)
    assert browser.ask(f"{WIDER}.length") > 0  # or the looks above would see nothing; here one scrolls


def test_all_of_a_report_is_on_paper(browser: Browser, tiny_run: FinishedRun) -> None:
    browser.open(html.write_page(tiny_run.folder), width=1280, dark=True, media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not browser.ask("document.querySelector('nav').checkVisibility()")
    assert browser.ask(CONTRASTS)["weak"] == []
    hidden = "[...document.querySelectorAll('.scroll')].filter((one) => getComputedStyle(one).overflowX !== 'visible')"
    assert browser.ask(f"{hidden}.length") == 0


def test_all_of_a_notebook_is_on_paper(browser: Browser, tiny_run: FinishedRun) -> None:
    html.write_page(tiny_run.folder)
    browser.open(tiny_run.folder / html.NOTEBOOK_FOLDER / "01_profile.html", width=1280, dark=True, media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask(CONTRASTS)["weak"] == []
    everything = "[...document.querySelectorAll('main :not(img)')]"
    hidden = f"{everything}.filter((one) => getComputedStyle(one).overflowX !== 'visible')"
    assert browser.ask(f"{hidden}.map((one) => one.tagName + '.' + one.className)") == []
