"""Live progress of a fleet: one line of counts, and one for each device with a problem."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from edgekit.core.terminal_progress import ProgressDisplay, show_progress
from edgekit.fleet.rollout.outcomes import FAILED, UNREACHABLE, Outcome


class LiveBoard:
    """What is shown of the devices; the caller updates the outcomes."""

    def __init__(self, watch: ProgressDisplay, quiet: bool) -> None:
        self._watch, self._quiet = watch, quiet

    def note(self, outcome: Outcome) -> None:
        """Note that a device has progressed; print a line if it failed."""
        if outcome.state in (FAILED, UNREACHABLE):
            self.say(outcome.line())

    def say(self, line: str) -> None:
        """Print a permanent line; on standard error with --json, because a program reads standard output."""
        self._watch.say(line, _to_stderr if self._quiet else print)


@contextmanager
def live_board(label: str, tell: Callable[[], str], quiet: bool) -> Iterator[LiveBoard]:
    """Show one line on a terminal, otherwise a line now and then; `tell` returns its text."""
    with show_progress(label) as watch, watch.during(label, tell, quietly=True):
        yield LiveBoard(watch, quiet)


def print_outcomes(outcomes: Sequence[Outcome], sha256: str, as_json: bool, summary: str) -> None:
    """Print one JSON object a line; or lines for devices with a note that did not fail, and a summary."""
    for outcome in outcomes:
        if as_json:
            print(json.dumps(outcome.record(sha256), sort_keys=True))
        elif outcome.why and outcome.state not in (FAILED, UNREACHABLE):
            print(outcome.line())
    if not as_json:
        print(summary)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
