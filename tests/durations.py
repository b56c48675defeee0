"""How long the tests take: the longest files begin first, and `--quick` leaves out what is slow.

The figures stand in durations.json, written by `pytest --measure` (`make durations`). A test that is not in it counts
as a quick one; a file that is not in it begins among the first.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).parent / "durations.json"
SLOW_TEST_S, SLOW_FIXTURE_S, SLOW_FILE_S = 0.3, 0.5, 2.0
"""`--quick` leaves out a test that takes this long, a file with such a fixture, and one whose other tests sum up so."""
UNKNOWN_S = 5.0
SHARED = "tiny_run"
"""The one run that many files read. The file that makes it goes first, other readers go last, so that none waits."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    parser.addoption("--quick", action="store_true", help="leave out what durations.json calls slow")
    parser.addoption("--measure", action="store_true", help="write tests/durations.json, of a run of the whole suite")


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist only runs tests; its parent hears how long each took."""
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch(), "stopwatch")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that is slow as a whole is not even imported."""
    return True if config.getoption("--quick") and name(collection_path) in slow() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow where that is asked for; put the longest files first."""
    if config.getoption("--quick"):
        left_out = [item for item in items if is_slow(item)]
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    seconds = record()["files"]
    readers = {name(item.path) for item in items if SHARED in fixtures(item)}
    maker = max(readers, key=lambda path: seconds.get(path, 0.0), default=None)

    def order(item: pytest.Item) -> tuple[bool, bool, float]:
        path = name(item.path)
        return path != maker, path in readers, -seconds.get(path, UNKNOWN_S)

    items.sort(key=order)


def is_slow(item: pytest.Item) -> bool:
    """Whether `--quick` leaves it out: it took long itself, or it reads the shared run."""
    return f"{name(item.path)}::{function(item.nodeid)}" in slow() or SHARED in fixtures(item)


def fixtures(item: pytest.Item) -> list[str]:
    """What it uses, directly or not."""
    return list(getattr(item, "fixturenames", ()))


def name(path: Path) -> str:
    """Relative to the project, as pytest names it; elsewhere as it is."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def function(nodeid: str) -> str:
    """`Class::test`, without parameters."""
    return nodeid.partition("::")[2].partition("[")[0]


@cache
def record() -> dict[str, Any]:
    """`files`: seconds of each that took one or more; `slow`: tests, and files, that `--quick` leaves out."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


@cache
def slow() -> frozenset[str]:
    """Files and tests that took long."""
    return frozenset(record()["slow"])


class Stopwatch:
    """Adds up what the tests report, and writes it at the end."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self.slow: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A fixture's time is the file's, for which of its tests pays for it is chance."""
        path = report.nodeid.partition("::")[0]
        self.files[path] += report.duration
        test = f"{path}::{function(report.nodeid)}"
        self.functions[test] += report.duration
        is_fixture = report.when == "setup"
        if report.duration >= (SLOW_FIXTURE_S if is_fixture else SLOW_TEST_S):
            self.slow.add(path if is_fixture else test)

    def pytest_sessionfinish(self) -> None:
        """In order, so that two records can be compared line by line."""
        others: Counter[str] = Counter()
        for test, seconds in self.functions.items():
            if test not in self.slow:
                others[test.partition("::")[0]] += seconds
        self.slow |= {path for path, seconds in others.items() if seconds >= SLOW_FILE_S}
        files = {path: round(seconds, 1) for path, seconds in sorted(self.files.items()) if seconds >= 1}
        RECORD.write_text(json.dumps({"files": files, "slow": sorted(self.slow)}, indent=1) + "\n")
