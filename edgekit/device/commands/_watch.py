"""`--watch`: report whether inputs and answers still look like those of validation."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.device.monitor.verdict import Verdict
    from edgekit.runner.model import Model

EVERY = 64
"""Number of samples from one check of the verdict to the next."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--watch",
        action="store_true",
        help="report on standard error whether the model still works as validated: whenever that changes, "
        "and at the end",
    )


@contextmanager
def report_verdicts(model: Model, enabled: bool) -> Iterator[None]:
    """Report the verdict of a model's monitor whenever it changes.

    At the end, the golden samples are run once more, and the last verdict is reported.
    """
    if not enabled:
        yield
        return
    watcher = VerdictReporter(model.monitor)
    model.observers.add(watcher)
    try:
        yield
    finally:
        model.observers.remove(watcher)
        model.monitor.canary()
        watcher.print_verdict(model.monitor.verdict())


class VerdictReporter:
    """An observer that reports changes of a monitor's verdict."""

    def __init__(self, monitor: Any) -> None:
        self._monitor, self._since = monitor, 0
        self._last: Any = "early"

    def answered(self, raw: Any, outputs: Any, prediction: Any) -> None:
        """See `Observer`."""
        self._check()

    def refused(self, error: Any) -> None:
        """See `Observer`."""
        self._check()

    def dropped(self, count: int) -> None:
        """See `Observer`."""

    def close(self) -> None:
        """See `Observer`."""

    def print_verdict(self, verdict: Verdict) -> None:
        """Print one line on standard error."""
        _shared.warn(f"still right? {verdict.level}: {verdict.reason}")

    def _check(self) -> None:
        self._since += 1
        if self._since < EVERY:
            return
        self._since, verdict = 0, self._monitor.verdict()
        alarms = sorted(each.statistic for each in verdict.findings if each.alarm)
        if (verdict.level, alarms) != self._last:
            self._last = verdict.level, alarms
            self.print_verdict(verdict)
