"""When a rollout continues and when it stops, with steps whose outcome each test decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from edgekit.fleet.devices.device_errors import DeviceError, HostKeyError, Unreachable
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.rollout.outcomes import CONFIRMED, FAILED, INSTALLING, ON_PROBATION, SENT, UNREACHABLE, Outcome
from edgekit.fleet.rollout.rollout import Rollout, RolloutPace, Step, for_each

HOSTS = [Host(f"h{number}", "pi", f"h{number}") for number in range(40)]


class Steps:
    """`ends` says of single devices how they end: at `send:h3` or `install:h3`, failed, unreachable or on probation."""

    def __init__(self, **ends: str) -> None:
        self.ends = {name.replace("__", ":"): end for name, end in ends.items()}
        self.calls: list[str] = []
        self.at_work = self.most = 0

    async def send(self, before: Outcome) -> Outcome:
        return await self._step("send", before, SENT)

    async def install(self, before: Outcome) -> Outcome:
        return await self._step("install", before, CONFIRMED)

    async def _step(self, kind: str, before: Outcome, good: str) -> Outcome:
        name = f"{kind}:{before.host.name}"
        self.calls.append(name)
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await asyncio.sleep(0)
        self.at_work -= 1
        end = self.ends.get(name, good)
        if end == FAILED:
            raise DeviceError("does not work", 5)
        if end == UNREACHABLE:
            raise Unreachable("nobody there")
        return before.to(end, exit_code=7 if end == ON_PROBATION else 0)


def rolled(steps: Steps, pace: RolloutPace | None = None) -> tuple[Counter[str], dict[str, Outcome]]:
    """States, and the outcomes by name."""
    seen: list[Outcome] = []
    rollout = Rollout(HOSTS, pace or RolloutPace(), seen.append)
    asyncio.run(rollout.run(steps.send, steps.install))
    assert {each.host.name for each in seen} == {host.name for host in HOSTS}
    return Counter(each.state for each in rollout.outcomes.values()), rollout.outcomes


def test_all_are_sent_to_before_any_is_installed_on() -> None:
    steps = Steps()
    assert rolled(steps)[0] == {CONFIRMED: 40}
    assert {call.partition(":")[0] for call in steps.calls[:40]} == {"send"}
    assert steps.calls[40:44] == ["install:h0", "install:h1", "install:h2", "install:h3"]


def test_no_more_than_so_many_at_once() -> None:
    steps = Steps()
    rolled(steps, RolloutPace(parallel=7))
    assert steps.most == 7


def test_a_canary_that_fails_keeps_all_others_as_they_are() -> None:
    states, outcomes = rolled(Steps(install__h0=FAILED))
    assert states == {FAILED: 1, SENT: 39}
    assert outcomes["h39"].why == "not installed, because h0 failed" and outcomes["h39"].exit_code == 0


def test_a_canary_that_stays_on_trial_does_so_too() -> None:
    states, outcomes = rolled(Steps(install__h0=ON_PROBATION))
    assert states == {ON_PROBATION: 1, SENT: 39} and outcomes["h1"].why == "not installed, because h0 was not confirmed"


def test_within_a_wave_none_is_begun_behind_a_failure() -> None:
    steps = Steps(install__h10=FAILED)
    states, _ = rolled(steps, RolloutPace(parallel=2))
    installed = [call for call in steps.calls if call.startswith("install")]
    assert states[FAILED] == 1 and states[CONFIRMED] <= 12 and len(installed) <= 13


def test_devices_that_cannot_be_sent_to_stop_nobody() -> None:
    states, _ = rolled(Steps(send__h0=UNREACHABLE, send__h5=UNREACHABLE))
    assert states == {UNREACHABLE: 2, CONFIRMED: 38}


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (DeviceError("answers with nonsense", 8), True),
        (DeviceError("lacks numpy", 5), True),
        (DeviceError("disk full", 7), False),
        (DeviceError("another release is on probation", 4), False),
        (HostKeyError("another key"), False),
    ],
)
def test_what_speaks_against_the_bundle_while_it_is_sent_stops_its_class(error: Exception, stops: bool) -> None:
    steps = Steps()

    async def send(before: Outcome) -> Outcome:
        if before.host.name == "h3":
            raise error
        return await steps.send(before)

    hosts = [*HOSTS[:4], *others(3)]
    found = end_of(hosts, send, steps.install)
    assert {found[host.name].state for host in hosts[4:]} == {CONFIRMED}, "the other class goes on"
    rest = [found[host.name] for host in hosts[:3]]
    assert {each.state for each in rest} == ({SENT} if stops else {CONFIRMED})
    assert {each.why for each in rest} == ({"not installed, because h3 rejected it"} if stops else {""})


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_class_of_which_nobody_got_it_goes_no_further_and_the_other_does(share: float) -> None:
    """A canary that went silent over it is the worst doubt of all, and that of another class proves nothing."""
    steps = Steps(install__h0=UNREACHABLE)
    hosts = [*HOSTS[:10], *others(10)]
    found = end_of(hosts, steps.send, steps.install, RolloutPace(share=share))
    assert [call for call in steps.calls if call.startswith("install:h")] == ["install:h0"]
    assert {found[host.name].state for host in hosts[1:10]} == {SENT}
    assert "no device of the previous wave" in found["h9"].why
    assert {found[host.name].state for host in hosts[10:]} == {CONFIRMED}


def test_the_canary_is_one_that_was_reached_when_it_was_sent_to() -> None:
    steps = Steps(send__h0=UNREACHABLE)
    found = end_of(HOSTS[:10], steps.send, steps.install, RolloutPace(parallel=1))
    assert [call for call in steps.calls if call.startswith("install")][:2] == ["install:h1", "install:h2"]
    assert [each.state for each in found.values()] == [UNREACHABLE, *[CONFIRMED] * 9]


def test_where_nobody_waits_a_release_on_trial_is_enough_for_the_next_wave() -> None:
    async def install(before: Outcome) -> Outcome:
        return before.to(ON_PROBATION)

    found = end_of(HOSTS, Steps().send, install)
    assert {each.state for each in found.values()} == {ON_PROBATION}


def others(count: int) -> list[Host]:
    """Devices of another class."""
    return [Host(f"box{number}", "box", f"box{number}") for number in range(count)]


def end_of(hosts: Sequence[Host], send: Step, install: Step, pace: RolloutPace | None = None) -> dict[str, Outcome]:
    """The outcomes by name."""
    rollout = Rollout(hosts, pace or RolloutPace(), lambda outcome: None)
    asyncio.run(rollout.run(send, install))
    return rollout.outcomes


def test_unreachable_devices_stop_nobody_but_a_whole_wave_of_them_does() -> None:
    states, _ = rolled(Steps(install__h1=UNREACHABLE, install__h20=UNREACHABLE))
    assert states == {UNREACHABLE: 2, CONFIRMED: 38}
    states, outcomes = rolled(Steps(install__h0=UNREACHABLE))
    assert states == {UNREACHABLE: 1, SENT: 39} and "no device of the previous wave" in outcomes["h9"].why


def test_a_fault_of_ours_ends_one_device() -> None:
    steps = Steps()

    async def send(before: Outcome) -> Outcome:
        if before.host.name == "h3":
            raise FileNotFoundError(2, "No such file or directory", "wheel.whl")
        return await steps.send(before)

    rollout = Rollout(HOSTS, RolloutPace(), lambda outcome: None)
    asyncio.run(rollout.run(send, steps.install))
    found = rollout.outcomes["h3"]
    assert (found.state, found.why, found.exit_code) == (FAILED, "No such file or directory: wheel.whl", 7)


def test_states_in_between_are_reported() -> None:
    seen: list[str] = []
    rollout = Rollout(HOSTS[:1], RolloutPace(), lambda outcome: seen.append(outcome.state))

    async def send(before: Outcome) -> Outcome:
        return before.to(SENT)

    async def install(before: Outcome) -> Outcome:
        rollout.update(before.to(INSTALLING))
        return before.to(CONFIRMED)

    asyncio.run(rollout.run(send, install))
    assert seen == [SENT, INSTALLING, CONFIRMED]


def test_an_interruption_ends_all_work_at_once() -> None:
    async def work(host: Host) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(for_each(HOSTS, work, 8))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
