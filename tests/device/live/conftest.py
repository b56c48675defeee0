"""Bundles and films that the tests of `edgerun live` share, and runs that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.device.live import films
from tests.device.live.running import Live

hypothesis.settings.register_profile("no deadline", deadline=None)  # for a machine on which much else runs
hypothesis.settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector of red and blue."""
    return films.detector(tmp_path_factory.mktemp("colours") / "colours.edge.zip")


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds of grey, in which a red square appears after one."""
    return films.film(tmp_path_factory.mktemp("film") / "red.mp4")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of the device."""
    return tmp_path / "home"


@pytest.fixture
def live(home: Path) -> Iterator[Callable[..., Live]]:
    """Starts one; it ends with the test."""
    started: list[Live] = []

    def start(*words: object, **more: Any) -> Live:
        started.append(Live(home, *words, **more))
        return started[-1]

    yield start
    for each in started:
        each.stop()
