"""Live progress of a fleet: one line of counts, and one for each device with a problem."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from edgekit.core.terminal_progress import ProgressDisplay, show_progress
from edgekit.fleet.rollout.outcomes import FAILED, UNREACHABLE, Outcome


class LiveBoard:
    """Shows the progress of a command on many devices."""

    def __init__(self, watch: ProgressDisplay, quiet: bool) -> None:
        self._watch, self._quiet = watch, quiet

    def note(self, outcome: Outcome) -> None:
        """Print a line if a device has failed."""
        if outcome.state in (FAILED, UNREACHABLE):
            self.say(outcome.line())

    def say(self, line: str) -> None:
        """Print a permanent line. With --json, it goes to standard error, because a program reads standard output."""
        self._watch.say(line, _to_stderr if self._quiet else print)


@contextmanager
def live_board(label: str, tell: Callable[[], str], quiet: bool) -> Iterator[LiveBoard]:
    """Show progress, whose text `tell` returns: one changing line on a terminal, otherwise a line now and then."""
    with show_progress(label) as watch, watch.during(label, tell, quietly=True):
        yield LiveBoard(watch, quiet)


def print_outcomes(outcomes: Sequence[Outcome], sha256: str, as_json: bool, summary: str) -> None:
    """With `as_json`, print each outcome as a line of JSON. Otherwise, print the notes on devices, and then `summary`.

    Failures are not printed as notes here, because they were printed when they happened.
    """
    for outcome in outcomes:
        if as_json:
            print(json.dumps(outcome.record(sha256), sort_keys=True))
        elif outcome.why and outcome.state not in (FAILED, UNREACHABLE):
            print(outcome.line())
    if not as_json:
        print(summary)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
