"""`--minutes N` for the long suites: begin no test after N minutes, and each commit at another place of the suite.

Where a machine is slow, a part of the suite is run and the rest is skipped by name, so that the whole of CI ends in
its time; what one commit leaves out, another runs.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.addoption("--minutes", type=float, metavar="N", help="begin no test after N minutes; skip the rest by name")


def pytest_configure(config: pytest.Config) -> None:
    """Only where it is asked for, and in no worker of xdist, whose order is not its own."""
    minutes = config.getoption("--minutes")
    if minutes is not None:
        config.pluginmanager.register(TimeBox(minutes), "time-box")


class TimeBox:
    """Counts what ran until the time was over."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.ends = float("inf")
        self.begun = self.left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Start at another module for every commit: one module's fixtures are made once."""
        modules = list(dict.fromkeys(item.path for item in items))
        if modules:
            first = modules[_commit() % len(modules)]
            start = next(place for place, item in enumerate(items) if item.path == first)
            items[:] = items[start:] + items[:start]

    def pytest_runtestloop(self) -> None:
        """The time begins when the tests do."""
        self.ends = time.monotonic() + 60 * self.minutes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what the time no longer reaches."""
        if time.monotonic() > self.ends:
            self.left_out += 1
            pytest.skip(f"not begun: the {self.minutes:g} minutes of this suite were over")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One that skips itself has not been begun."""
        self.begun += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How much of the suite that was."""
        whole = self.begun + self.left_out
        terminalreporter.line(f"begun {self.begun} of {whole} tests within {self.minutes:g} minutes")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A box in which nothing fits proves nothing."""
        if self.left_out and not self.begun and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _commit() -> int:
    """A number that each commit has another of; 0 outside of git."""
    said = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(said.stdout.strip() or "0", 16)
