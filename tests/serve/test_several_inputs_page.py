"""The page and a model of several inputs: it shows them, and an .npz file dropped on it gets its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.runner import load
from tests.report.html.browser import Browser
from tests.runner import flat
from tests.serve.conftest import Start
from tests.serve.server import Server
from tests.serve.several import npz, samples, write
from tests.serve.test_page import browser, drop, open_page, until  # noqa: F401  (fixture: a real browser)
from tests.serve.test_protocol import wire_answer

pytestmark = pytest.mark.processes

INPUTS = "picture FP32 [1, 4, 4], ids INT32 [6]"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("onnx", tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def server(start: Start, path: Path) -> Server:
    return start(path, flat.write(path.with_name("flat.edge.zip"), flat.VECTOR))


def choose(browser: Browser, model: str) -> None:  # noqa: F811
    browser.ask(
        f"document.getElementById('model').value = {model!r}; "
        "document.getElementById('model').dispatchEvent(new Event('change'))"
    )


def test_the_inputs_are_shown_and_a_dropped_npz_is_answered(browser: Browser, server: Server, path: Path) -> None:  # noqa: F811
    open_page(browser, server)
    assert INPUTS in browser.ask("document.getElementById('models').innerText")
    choose(browser, "two")
    until(browser, "!document.getElementById('named').hidden")
    assert INPUTS in browser.ask("document.getElementById('named').textContent")
    [sample] = samples(1)
    drop(browser, npz(sample))
    until(browser, "document.getElementById('answer').textContent.includes('label')")
    [shown] = json.loads(browser.ask("document.getElementById('answer').textContent"))
    assert shown == wire_answer(load(path, threads=1, trial=False).predict(sample).to_dict())
    drop(browser, npz({**sample, "ids": sample["ids"] + 10}))
    until(browser, "document.getElementById('answer').textContent.includes('the bundle takes 0 to 9')")
    choose(browser, "tiny")
    until(browser, "document.getElementById('named').hidden")
    assert not [each for each in browser.complaints if each.startswith("exception")]
