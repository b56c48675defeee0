"""`edgekit fleet push`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.cli.fleet import journal, live, outcomes, parcel
from edgekit.cli.fleet.fleet import Chosen
from edgekit.cli.fleet.journal import Journal
from edgekit.cli.fleet.outcomes import CONFIRMED, Outcome
from edgekit.cli.fleet.parcel import Parcel
from edgekit.cli.fleet.pushing import Options, Pusher
from edgekit.cli.fleet.rollout import Pace, Rollout
from edgekit.measure.devices.connection import Network
from edgekit.measure.devices.supply import Runner, Supplies


@dataclass(frozen=True)
class Request:
    """The command's options."""

    bundle: Path
    chosen: Chosen
    canary: int = 1
    share: str = "10%"
    confirm: bool = False
    wait_s: float = 180.0
    wheels: Path | None = None
    trust: Path | None = None
    latency_ms: float | None = None
    again: bool = False
    send_only: bool = False

    @property
    def options(self) -> Options:
        """Those for each device."""
        proof = () if self.latency_ms is None else ("--latency-ms", f"{self.latency_ms:g}")
        return Options(self.wait_s, self.confirm, proof)


def run(request: Request, as_json: bool) -> int:
    """The exit code of the worst device."""
    chosen, sent = request.chosen, parcel.read(request.bundle, request.trust)
    pace = Pace(request.canary, parcel.share(request.share), chosen.parallel)
    network, supplies = Network(), Supplies(Runner.build(), request.wheels)
    if request.wheels is not None:
        supplies.house  # noqa: B018  (a folder that holds none is said before any device is asked)
    with journal.opened(chosen.inventory, f"edgekit fleet push {request.bundle.name}") as notes:
        shown: dict[str, Callable[[Outcome], object]] = {}

        def on_change(outcome: Outcome) -> None:
            notes.note(outcome, sent.key)
            shown["note"](outcome)

        rollout = Rollout(chosen.hosts, pace, on_change)
        if not request.again:
            _skip_known(rollout, notes, sent)
        with live.board("fleet push", lambda: outcomes.counts(rollout.outcomes), as_json) as board:
            shown["note"] = board.note
            pusher = Pusher(network, supplies, sent, request.options, rollout.say)
            asyncio.run(rollout.run(pusher.send, None if request.send_only else pusher.install))
    ended = list(rollout.outcomes.values())
    live.print_outcomes(ended, sent.bundle.sha256, as_json, outcomes.counts(ended))
    return outcomes.worst(ended)


def _skip_known(rollout: Rollout, notes: Journal, sent: Parcel) -> None:
    """What an earlier push has brought so far is not asked for again."""
    for name, outcome in rollout.outcomes.items():
        state = notes.state(outcome.host, sent.key)
        release = notes.release(outcome.host) if state == CONFIRMED else None
        rollout.outcomes[name] = outcome.to(state, release=release)
