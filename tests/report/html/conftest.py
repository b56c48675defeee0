"""Shared by the tests of the page: a run that missed its budget, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.report import html
from tests import requirements
from tests.conftest import FinishedRun
from tests.report.html import runs
from tests.report.html.browser import Browser


@pytest.fixture(scope="session")
def missed(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that missed its budget, its page drawn."""
    folder = runs.missed(tiny_run, tmp_path_factory.mktemp("missed"))
    html.write_page(folder)
    return folder


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium."""
    browser = Browser.start(requirements.program("chromium"), tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.stop()
