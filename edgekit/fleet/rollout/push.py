"""The command `edgekit fleet push`."""

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
        """The options that apply to each device."""
        for name, value in (("--wait", self.wait_s), ("--latency-ms", self.latency_ms)):
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{name} {value:g}: use a number from 0")
        install_options = () if self.latency_ms is None else ("--latency-ms", f"{self.latency_ms:g}")
        return PushOptions(self.wait_s, self.confirm, install_options)


def run(request: PushRequest, as_json: bool) -> int:
    """Push the bundle, and return the exit code of the worst device."""
    selection, options, content = request.chosen, request.options, payload.read_payload(request.bundle, request.trust)
    pace = RolloutPace(request.canary, payload.parse_fraction(request.share), selection.parallel)
    network, supplies = Network(), Supplies(RunnerFile.build(), request.wheels)
    if request.wheels is not None:
        supplies.wheels  # noqa: B018  (an empty folder is reported before any device is contacted)
    with journal.open_journal(selection.inventory, f"edgekit fleet push {request.bundle.name}") as record:
        callbacks: dict[str, Callable[[Outcome], object]] = {}

        def on_change(outcome: Outcome) -> None:
            record.note(outcome, content.key)
            callbacks["note"](outcome)

        rollout = Rollout(selection.hosts, pace, on_change)
        noted = {host.name: record.known(host, content.key) for host in selection.hosts}
        with live_display.live_board("fleet push", lambda: outcomes.count_line(rollout.outcomes), as_json) as board:
            callbacks["note"] = board.note
            pusher = Pusher(network, supplies, content, options, rollout.update)
            asyncio.run(rollout.run(pusher.send, None if request.send_only else pusher.install))
    results = [_with_known(each, noted[each.host.name]) for each in rollout.outcomes.values()]
    live_display.print_outcomes(results, content.bundle.sha256, as_json, outcomes.count_line(results))
    return outcomes.worst_exit_code(results)


def _with_known(outcome: Outcome, noted: str) -> Outcome:
    """If a device is unreachable, add its last known state from the journal."""
    if outcome.state != UNREACHABLE or not noted:
        return outcome
    return outcome.to(outcome.state, why=f"{outcome.why}; {noted}")
