"""search.html: complete and reproducible, readable on wide and narrow screens, and safe against malicious studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import DataError
from edgekit.report.html.source_digest import stored_digest
from edgekit.report.search import page, studies
from tests.report.html.browser import Browser
from tests.report.html.conftest import browser as browser
from tests.report.html.test_screens import looked_at
from tests.report.search import example

FEW = example.study(trials=16)
"""Too few for importances, which take seconds."""


def drawn(folder: Path, content: dict[str, Any]) -> Path:
    example.write(content, folder / "study.json")
    return page.write_page(folder)


def test_a_page_has_the_points_and_the_commands_and_is_drawn_once(tmp_path: Path) -> None:
    path = drawn(tmp_path, FEW)
    text, before = path.read_text(), path.stat().st_mtime_ns
    study = studies.read(tmp_path)
    for number in {point["number"] for point in study.front if point["number"] in study.row["front"]}:
        assert f'<th scope="row" class="number">{number}</th>' in text
    assert "edgekit search configs/digits.yaml --take" in text and "Ended: made up by a formula" in text
    assert "Too few trials to tell what each option did" in text
    assert stored_digest(text) and text.endswith(page.END)
    assert page.write_page(tmp_path).stat().st_mtime_ns == before
    path.write_text(text[:-9])
    assert page.write_page(tmp_path).read_text() == text  # the same bytes again


def test_another_study_has_another_page(tmp_path: Path) -> None:
    path = drawn(tmp_path, FEW)
    text = path.read_text()
    none = drawn(tmp_path, example.study(trials=4, budget={"latency_p50_ms": 0.001})).read_text()
    assert none != text and "No trial is inside the budget" in none and 'class="missed"' in none


def test_a_damaged_study_leaves_the_page_that_is_there(tmp_path: Path) -> None:
    path = drawn(tmp_path, example.study(trials=1))
    text = path.read_text()
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(DataError):
        page.write_page(tmp_path)
    printed: list[str] = []
    assert not page.try_write_page(tmp_path / "study.json", printed.append)
    assert path.read_text() == text and "The study is complete" in printed[0]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_a_page_reads_well(width: int, dark: bool, browser: Browser, tmp_path: Path) -> None:
    looked_at(browser, drawn(tmp_path, FEW), width, dark, tmp_path / "shot.png")
    letters = "[...document.images].map((one) => one.getBoundingClientRect().width / one.naturalWidth)"
    assert min(browser.ask(letters)) > 0.75  # of 8 points at least 6 are left


def test_what_a_study_brings_is_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    bad = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
    content = example.study(trials=4)
    content.update(ended=bad, config={"name": bad}, config_path=bad, edgekit=bad)
    content["sampler"] = {"name": bad, "reason": bad}
    for trial in content["trials"]:
        trial.update(reason=f"{bad}\u001b[2J\n{bad}", variants={"tflite": bad})
    browser.open(drawn(tmp_path, content), width=1280, dark=False)
    assert browser.complaints == [] and browser.ask("window.ran") is None
    assert browser.ask("document.body.innerText").count("<script>") >= 5
