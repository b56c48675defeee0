"""How a fleet is doing, while it does it: one line of counts, and one for each device where something is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from edgekit.core.terminal_progress import Watch, watching
from edgekit.fleet.rollout.outcomes import FAILED, UNREACHABLE, Outcome


class LiveBoard:
    """What is shown of the devices; `outcomes` is filled by whoever works on them."""

    def __init__(self, watch: Watch, quiet: bool) -> None:
        self._watch, self._quiet = watch, quiet

    def note(self, outcome: Outcome) -> None:
        """A device has gone on; a line where it went no further."""
        if outcome.state in (FAILED, UNREACHABLE):
            self.say(outcome.line())

    def say(self, line: str) -> None:
        """A line for good; with --json on standard error, for the other is read by a program."""
        self._watch.say(line, _to_stderr if self._quiet else print)


@contextmanager
def live_board(label: str, tell: Callable[[], str], quiet: bool) -> Iterator[LiveBoard]:
    """One line on a terminal, else a line now and then; `tell` gives what stands in it."""
    with watching(label) as watch, watch.during(label, tell, quietly=True):
        yield LiveBoard(watch, quiet)


def print_outcomes(outcomes: Sequence[Outcome], sha256: str, as_json: bool, summary: str) -> None:
    """One object a line; or what there is to say behind the lines of the failures, and a summary."""
    for outcome in outcomes:
        if as_json:
            print(json.dumps(outcome.record(sha256), sort_keys=True))
        elif outcome.why and outcome.state not in (FAILED, UNREACHABLE):
            print(outcome.line())
    if not as_json:
        print(summary)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
