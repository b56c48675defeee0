"""The page at `/` in a real browser: what it shows, what it does with a file, and that it asks nobody else."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from tests import requirements
from tests.report.html.browser import Browser
from tests.serve import cached
from tests.serve.conftest import KEYS, Start
from tests.serve.server import Server
from tests.serve.watched import with_reference

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Server:
    return start(folder, "--workers", 2)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser.start(requirements.program("chromium"), tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.stop()


def open_page(browser: Browser, server: Server, width: int = 1000) -> None:
    """The page, with its table filled."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.complaints.clear()
    browser.requested.clear()
    browser.call("Page.navigate", url=f"http://{server.url}/")
    until(browser, "document.querySelectorAll('#models tr').length > 0")


def until(browser: Browser, condition: str) -> None:
    limit = time.monotonic() + 30
    while not browser.ask(f"document.readyState === 'complete' && ({condition})"):
        assert time.monotonic() < limit, f"{condition}: {browser.ask('document.body.innerText')}"
        time.sleep(0.05)


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_table_names_every_model(browser: Browser, server: Server) -> None:
    open_page(browser, server)
    text = browser.ask("document.body.innerText")
    for name in KEYS.values():
        assert f"{name} 1.2.0" in text
    assert "UINT8 [8, 8, 1]" in text
    assert "2 workers" in text
    assert browser.ask("[...document.querySelectorAll('#model option')].map(one => one.value)") == sorted(KEYS.values())


def test_a_chosen_file_shows_its_answer(browser: Browser, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(picture())
    open_page(browser, server)
    document = browser.call("DOM.getDocument")["root"]["nodeId"]
    node = browser.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    for _ in range(2):  # the same file once more is a choice too
        browser.ask("document.getElementById('answer').textContent = ''")
        browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
        until(browser, "document.getElementById('answer').textContent.includes('label')")
    [shown] = json.loads(browser.ask("document.getElementById('answer').textContent"))
    model = browser.ask("document.getElementById('model').value")
    assert shown == server.ask("PUT", f"/predict?model={model}", picture()).json()["answers"][0]
    until(browser, "document.querySelector('#models td:nth-child(4)').textContent > 0")


def test_it_shows_where_the_time_goes(browser: Browser, server: Server) -> None:
    model = sorted(KEYS.values())[0]
    assert server.ask("PUT", f"/predict?model={model}", picture()).status == 200
    open_page(browser, server)
    cells = "[...document.querySelectorAll('#parts tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    rows = {name: parts for name, *parts in browser.ask(cells)}
    assert set(rows) == {f"{name} 1.2.0" for name in KEYS.values()}
    assert all(len(parts) == 4 for parts in rows.values())
    assert all(float(each) > 0 for part in rows[f"{model} 1.2.0"][1:] for each in part.split(" / "))


def test_it_says_whether_a_model_is_still_right(browser: Browser, start: Start, tmp_path: Path) -> None:
    watched = start(with_reference(cached.tiny(tmp_path)), "--watch")
    open_page(browser, watched)
    until(browser, "document.getElementById('models').innerText.includes('early: 0 samples are too few for a verdict')")


def drop(browser: Browser, content: bytes) -> None:
    browser.ask(
        f"""(() => {{
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array({list(content)})], "a"));
        document.getElementById("answer").textContent = "";
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{dataTransfer: data, cancelable: true}}));
        }})()"""
    )


def test_a_dropped_file_shows_its_answer_or_what_was_wrong(browser: Browser, server: Server) -> None:
    open_page(browser, server)
    drop(browser, picture())
    until(browser, "document.getElementById('answer').textContent.includes('label')")
    assert not browser.ask("document.getElementById('answer').className")
    drop(browser, b"<b>no picture</b>")
    until(browser, "document.getElementById('answer').textContent.includes('this model takes')")
    assert browser.ask("document.getElementById('answer').className") == "bad"


@pytest.mark.parametrize("width", [360, 1000])
def test_it_fits_its_window_complains_of_nothing_and_asks_this_server_alone(
    browser: Browser, server: Server, width: int, tmp_path: Path
) -> None:
    open_page(browser, server, width)
    drop(browser, picture())
    until(browser, "document.getElementById('answer').textContent.includes('label')")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.picture(tmp_path / f"serve-{width}.png")
    assert {urlsplit(one).netloc for one in browser.requested} == {server.url}
    assert not browser.complaints
