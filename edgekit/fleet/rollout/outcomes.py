"""How far each device is, in words and as JSON; and the exit code of the worst."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.core.errors import EdgekitError, ResourceError
from edgekit.fleet.devices.device_errors import Unreachable
from edgekit.fleet.devices.inventory import Host
from edgekit.runner.errors import RunnerError

WAITING, SENDING, SENT, INSTALLING = "waiting", "sending", "sent", "installing"
ON_TRIAL, CONFIRMED, FAILED, UNREACHABLE = "on trial", "confirmed", "failed", "unreachable"
REFUSED, REFUSED_CODE = "refused", 8
"""Current on a device that would not load it."""
ARRIVED = (SENT, INSTALLING, ON_TRIAL, CONFIRMED)
"""States in which the bundle lies on the device."""
SEVERITY = (8, 5, 4, 6, 2, 7)
"""Exit codes, the worst first: what speaks against a device or the bundle outweighs a line or a disk."""


@dataclass(frozen=True)
class Outcome:
    """Of one device; `why` says what is wrong, or what is still to come."""

    host: Host
    state: str = WAITING
    release: int | None = None
    why: str = ""
    exit_code: int = 0
    cuts: int = 0

    def to(self, state: str, **changes: Any) -> Outcome:
        """The next one."""
        return replace(self, state=state, **changes)

    def record(self, sha256: str) -> dict[str, Any]:
        """As JSON."""
        facts = {"host": self.host.name, "class": self.host.device_class, "address": self.host.address}
        told = {"state": self.state, "release": self.release, "why": self.why, "exit_code": self.exit_code}
        return {**facts, "sha256": sha256, **told, "cuts": self.cuts}

    def line(self) -> str:
        """For people."""
        return f"{self.host.name}: {self.state}{f': {self.why}' if self.why else ''}"


DEVICE_FAULTS = (EdgekitError, RunnerError, OSError)
"""What may go wrong with one device, while the others go on."""


def failed_outcome(before: Outcome, error: EdgekitError | RunnerError | OSError) -> Outcome:
    """What an error makes of a device."""
    if isinstance(error, OSError):  # of a file of ours
        error = ResourceError(f"{error.strerror or error}: {error.filename or before.host.name}")
    state = UNREACHABLE if isinstance(error, Unreachable) else FAILED
    text = str(error).removeprefix(f"{before.host.address}: ")
    return before.to(state, why=text, exit_code=error.exit_code)


def worst_exit_code(outcomes: Iterable[Outcome]) -> int:
    """The exit code of a command that did this to all of them."""
    codes = {each.exit_code for each in outcomes} - {0}
    return next((code for code in SEVERITY if code in codes), max(codes, default=0))


def count_line(outcomes: Sequence[Outcome] | Mapping[str, Outcome]) -> str:
    """`sent 40/50 · on trial 3 · confirmed 1 · failed 0 · unreachable 2`, before it those that are still at work."""
    every = list(outcomes.values()) if isinstance(outcomes, Mapping) else list(outcomes)
    states = [each.state for each in every]
    arrived = sum(state in ARRIVED for state in states)
    told = [f"{state} {states.count(state)}" for state in (ON_TRIAL, CONFIRMED, FAILED, UNREACHABLE)]
    now = [f"{state} {states.count(state)}" for state in (WAITING, SENDING, INSTALLING) if state in states]
    return " · ".join([*now, f"sent {arrived}/{len(every)}", *told])
