"""The outcome of a command on each device, as text and as JSON, and the exit code of the worst outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.core.errors import EdgekitError, ResourceError
from edgekit.fleet.devices.device_errors import Unreachable
from edgekit.fleet.devices.inventory import Host
from edgekit.runner.errors import RunnerError

WAITING, SENDING, SENT, INSTALLING = "waiting", "sending", "sent", "installing"
ON_PROBATION, CONFIRMED, FAILED, UNREACHABLE = "on probation", "confirmed", "failed", "unreachable"
REFUSED, REFUSED_CODE = "refused", 8
"""The state of a device that refuses to load its current release, and the exit code for it."""
ARRIVED = (SENT, INSTALLING, ON_PROBATION, CONFIRMED)
"""States in which the bundle is on the device."""
SEVERITY = (8, 5, 4, 6, 2, 7)
"""Exit codes, the worst first: a problem of a device or the bundle outweighs one of a connection or a disk."""


@dataclass(frozen=True)
class Outcome:
    """The state of one device. `why` says what is wrong, or what is still pending."""

    host: Host
    state: str = WAITING
    release: int | None = None
    why: str = ""
    exit_code: int = 0
    cuts: int = 0

    def to(self, state: str, **changes: Any) -> Outcome:
        """Return the outcome in another state, with further changes."""
        return replace(self, state=state, **changes)

    def record(self, sha256: str) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        facts = {"host": self.host.name, "class": self.host.device_class, "address": self.host.address}
        result = {"state": self.state, "release": self.release, "why": self.why, "exit_code": self.exit_code}
        return {**facts, "sha256": sha256, **result, "cuts": self.cuts}

    def line(self) -> str:
        """Return the outcome as a line of text."""
        return f"{self.host.name}: {self.state}{f': {self.why}' if self.why else ''}"


DEVICE_FAULTS = (EdgekitError, RunnerError, OSError)
"""Errors of one device that do not stop the others."""


def failed_outcome(before: Outcome, error: EdgekitError | RunnerError | OSError) -> Outcome:
    """Return the outcome of a device after an error."""
    if isinstance(error, OSError):  # it concerns a file on the workstation
        error = ResourceError(f"{error.strerror or error}: {error.filename or before.host.name}")
    state = UNREACHABLE if isinstance(error, Unreachable) else FAILED
    text = str(error).removeprefix(f"{before.host.address}: ")
    return before.to(state, why=text, exit_code=error.exit_code)


def worst_exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return the exit code of a command with these outcomes."""
    codes = {each.exit_code for each in outcomes} - {0}
    return next((code for code in SEVERITY if code in codes), max(codes, default=0))


def count_line(outcomes: Sequence[Outcome] | Mapping[str, Outcome]) -> str:
    """Return a text like `installing 1 · sent 40/50 · on probation 3 · confirmed 1 · failed 0 · unreachable 2`."""
    all_outcomes = list(outcomes.values()) if isinstance(outcomes, Mapping) else list(outcomes)
    states = [each.state for each in all_outcomes]
    arrived = sum(state in ARRIVED for state in states)
    counts = [f"{state} {states.count(state)}" for state in (ON_PROBATION, CONFIRMED, FAILED, UNREACHABLE)]
    in_progress = [f"{state} {states.count(state)}" for state in (WAITING, SENDING, INSTALLING) if state in states]
    return " · ".join([*in_progress, f"sent {arrived}/{len(all_outcomes)}", *counts])
