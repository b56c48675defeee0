"""Bundles timed in turns on every device of a class, by each device's own clock; nothing is installed there.

The protocol is that of this machine's rounds: `bench.timed_openings`, in `edgerun bench A B …`. A device that was hot,
throttled or busy meanwhile is measured again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from edgekit.core.errors import EdgekitError
from edgekit.device.measure.intervals import MIN_ROUNDS
from edgekit.fleet.devices import device_json
from edgekit.fleet.devices.commands import Edgerun, say_hello
from edgekit.fleet.devices.connection import CommandResult, Network
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.device_json import MALFORMED_ANSWER
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import FileContent, RunnerFile, Supplies, supply
from edgekit.fleet.devices.temporary import TemporaryBundle, temporary_bundles

T = TypeVar("T")
MOST_BYTES = 256 << 20
"""Of an answer, which has the time of every call."""
LONGEST_S = 3 * 3600.0
PAUSES_S = (5.0, 15.0, 45.0)
"""Before a disturbed device is measured again: a board cools down in minutes, and a service has done its work."""
MOST_REASONS = 20
MOST_AT_ONCE = 32
"""Devices that are asked at the same time."""


@dataclass(frozen=True)
class BenchmarkBundle:
    """A bundle to be timed: its name among the variants, its target and its bytes."""

    name: str
    target: str
    sha256: str
    data: bytes


@dataclass(frozen=True)
class BenchmarkPlan:
    """How often; `threads` are those of every interpreter."""

    rounds: int
    calls_per_round: int
    warmup_per_round: int
    threads: int

    def options(self) -> list[str]:
        """For `edgerun bench`."""
        calls = self.rounds * self.calls_per_round
        numbers = {
            "--rounds": self.rounds,
            "--calls": calls,
            "--warmup": self.warmup_per_round,
            "--threads": self.threads,
        }
        said = [word for name, value in numbers.items() for word in (name, str(value))]
        return [*said, "--no-trial", "--json", "--samples"]


@dataclass(frozen=True)
class DeviceMeasurement:
    """What a device measured: milliseconds of every call by name, (rounds * calls,), from so many openings of each.

    `machine` says where; `interpreters` by name of the variant, which program ran it.
    """

    samples_ms: Mapping[str, np.ndarray]
    openings: int
    machine: Mapping[str, str]
    interpreters: Mapping[str, str]
    disturbed: tuple[str, ...]


def check_hosts(hosts: Sequence[Host]) -> None:
    """Each must answer, and have a Python that the runner runs on; errors as of `time_everywhere`."""
    runner = RunnerFile.build()

    async def one(network: Network, host: Host) -> None:
        async with DeviceSession(network, host) as line:
            _check_unsigned(await say_hello(line, runner.sha256))

    _of_each(hosts, one)


def time_on_hosts(
    hosts: Sequence[Host],
    bundles: Sequence[BenchmarkBundle],
    asked: BenchmarkPlan,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, DeviceMeasurement]:
    """What each host measured, by its name; many of them at once, as they are different machines.

    Raises
    ------
    Unreachable, Refused, HostKeyError, DeviceError
        One of them did not measure; the message begins with its name.
    """
    supplies = Supplies(RunnerFile.build())

    def one(network: Network, host: Host) -> Awaitable[DeviceMeasurement]:
        return _one(network, host, bundles, asked, supplies, say)

    return dict(zip((host.name for host in hosts), _of_each(hosts, one), strict=True))


def _of_each(hosts: Sequence[Host], work: Callable[[Network, Host], Awaitable[T]]) -> list[T]:
    """The work on every host, `MOST_AT_ONCE` at a time; the first that fails ends the others."""

    async def everything() -> list[T]:
        network, room = Network(), asyncio.Semaphore(MOST_AT_ONCE)

        async def one(host: Host) -> T:
            async with room:
                try:
                    return await work(network, host)
                except EdgekitError as error:
                    error.args = (f"{host.name}: {error}",)
                    raise

        tasks = [asyncio.create_task(one(host)) for host in hosts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return _in_a_thread(everything)


async def _one(
    network: Network,
    host: Host,
    bundles: Sequence[BenchmarkBundle],
    asked: BenchmarkPlan,
    supplies: Supplies,
    say: Callable[[str], object],
) -> DeviceMeasurement:
    async with DeviceSession(network, host) as line:
        found = await say_hello(line, supplies.runner.sha256)
        _check_unsigned(found)
        for target in sorted({each.target for each in bundles}):
            edgerun, found = await supply(line, found, supplies, target, sum(len(each.data) for each in bundles))
        sent = [TemporaryBundle(FileContent(each.data, each.sha256)) for each in bundles]
        async with temporary_bundles(line, found, sent) as paths:
            return await _quiet(line, edgerun, paths, bundles, asked, say)


def _check_unsigned(found: HelloFacts) -> None:
    if found.status is not None and found.status.signed:
        raise DeviceError("is in signed mode, so it times no variants; name devices without a policy", 8)


async def _quiet(
    line: DeviceSession,
    edgerun: Edgerun,
    paths: Sequence[str],
    bundles: Sequence[BenchmarkBundle],
    asked: BenchmarkPlan,
    say: Callable[[str], object],
) -> DeviceMeasurement:
    """The first part that nothing disturbed, else the last one, which says what did."""
    for pause_s in (*PAUSES_S, None):
        answer = await edgerun.bench(*paths, *asked.options(), within_s=LONGEST_S, most=MOST_BYTES)
        part = _part(answer, bundles, asked)
        if not part.disturbed or pause_s is None:
            return part
        say(f"{line.host.name} was disturbed ({part.disturbed[0]}); measured again in {pause_s:g} s")
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")


def _part(answer: CommandResult, bundles: Sequence[BenchmarkBundle], asked: BenchmarkPlan) -> DeviceMeasurement:
    """Of `edgerun bench --json --samples`; DeviceError where it is not about exactly these bundles and calls."""
    lines = [line for line in answer.out.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    values = device_json.parse_object(lines[-1] if lines else "")
    rows = values.get("bundles")
    if not isinstance(rows, list) or len(rows) != len(bundles):
        raise DeviceError("timed other bundles than it was asked to", MALFORMED_ANSWER)
    samples, interpreters = {}, {}
    for row, sent in zip(rows, bundles, strict=True):
        if not isinstance(row, dict) or row.get("sha256") != sent.sha256:
            raise DeviceError(f"timed another file than {sent.name}", MALFORMED_ANSWER)
        samples[sent.name] = _samples_ms(row.get("samples_ns"), asked)
        version = device_json.get_text(row, "version", 40)
        interpreters[sent.name] = f"{device_json.get_text(row, 'interpreter', 40)} {version}".strip()
    openings = device_json.get_count(values, "openings")
    if openings < MIN_ROUNDS or asked.rounds % openings:
        raise DeviceError(f"says that it opened each file {openings} times in {asked.rounds} rounds", MALFORMED_ANSWER)
    machine = values.get("machine")
    if not isinstance(machine, dict):
        raise DeviceError("timed the files, and does not say what machine it is", MALFORMED_ANSWER)
    facts = {key: device_json.get_text(machine, key, 100) for key in MACHINE}
    why = tuple(device_json.get_texts(values, "why")[:MOST_REASONS])
    return DeviceMeasurement(samples, openings, facts, interpreters, why)


MACHINE = ("host", "cpu", "machine", "system", "python", "numpy")


def _samples_ms(values: Any, asked: BenchmarkPlan) -> np.ndarray:
    count = asked.rounds * asked.calls_per_round
    if not isinstance(values, list) or len(values) != count or not all(map(device_json.is_count, values)):
        raise DeviceError(f"does not give the times of {count} calls", MALFORMED_ANSWER)
    found = np.asarray(values, dtype=np.float64) / 1e6
    if np.median(found) <= 0:
        raise DeviceError("says that calls took no time", MALFORMED_ANSWER)
    return found


def _in_a_thread(work: Callable[[], Awaitable[T]]) -> T:
    """Its result; a loop of its own, for a notebook's kernel runs one already. Ctrl-C ends it."""
    ended: list[T | BaseException] = []
    loop = asyncio.new_event_loop()

    async def as_task() -> None:
        try:
            ended.append(await work())
        except BaseException as error:  # raised again by whoever waits
            ended.append(error)

    task = loop.create_task(as_task())
    thread = threading.Thread(target=loop.run_until_complete, args=(task,), daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    finally:
        with contextlib.suppress(RuntimeError):
            loop.close()
    (found,) = ended
    if isinstance(found, BaseException):
        raise found
    return found
