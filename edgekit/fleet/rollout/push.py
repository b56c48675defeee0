"""`edgekit fleet push`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.supply import RunnerFile, Supplies
from edgekit.fleet.rollout import journal, live_display, outcomes, payload
from edgekit.fleet.rollout.outcomes import UNREACHABLE, Outcome
from edgekit.fleet.rollout.pusher import Pusher, PushOptions
from edgekit.fleet.rollout.rollout import Rollout, RolloutPace
from edgekit.fleet.rollout.selection import FleetSelection


@dataclass(frozen=True)
class PushRequest:
    """The command's options."""

    bundle: Path
    chosen: FleetSelection
    canary: int = 1
    share: str = "10%"
    confirm: bool = False
    wait_s: float = 180.0
    wheels: Path | None = None
    trust: Path | None = None
    latency_ms: float | None = None
    send_only: bool = False

    @property
    def options(self) -> PushOptions:
        """Those for each device."""
        for name, value in (("--wait", self.wait_s), ("--latency-ms", self.latency_ms)):
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{name} {value:g}: write a number from 0")
        proof = () if self.latency_ms is None else ("--latency-ms", f"{self.latency_ms:g}")
        return PushOptions(self.wait_s, self.confirm, proof)


def run(request: PushRequest, as_json: bool) -> int:
    """The exit code of the worst device."""
    chosen, options, sent = request.chosen, request.options, payload.read_payload(request.bundle, request.trust)
    pace = RolloutPace(request.canary, payload.parse_fraction(request.share), chosen.parallel)
    network, supplies = Network(), Supplies(RunnerFile.build(), request.wheels)
    if request.wheels is not None:
        supplies.house  # noqa: B018  (a folder that holds none is said before any device is asked)
    with journal.open_journal(chosen.inventory, f"edgekit fleet push {request.bundle.name}") as notes:
        shown: dict[str, Callable[[Outcome], object]] = {}

        def on_change(outcome: Outcome) -> None:
            notes.note(outcome, sent.key)
            shown["note"](outcome)

        rollout = Rollout(chosen.hosts, pace, on_change)
        known = {host.name: notes.known(host, sent.key) for host in chosen.hosts}
        with live_display.live_board("fleet push", lambda: outcomes.count_line(rollout.outcomes), as_json) as board:
            shown["note"] = board.note
            pusher = Pusher(network, supplies, sent, options, rollout.say)
            asyncio.run(rollout.run(pusher.send, None if request.send_only else pusher.install))
    ended = [_with_known(each, known[each.host.name]) for each in rollout.outcomes.values()]
    live_display.print_outcomes(ended, sent.bundle.sha256, as_json, outcomes.count_line(ended))
    return outcomes.worst_exit_code(ended)


def _with_known(outcome: Outcome, known: str) -> Outcome:
    """What an earlier push has noted is worth a word where nobody can be asked now."""
    if outcome.state != UNREACHABLE or not known:
        return outcome
    return outcome.to(outcome.state, why=f"{outcome.why}; {known}")
