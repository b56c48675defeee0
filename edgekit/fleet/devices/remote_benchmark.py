"""Time bundles in turns on every device of a class, with each device's own clock. No bundle is installed there.

The measurement is the same as on this machine: `edgerun bench A B …`, which calls `bench.timed_openings`. A device that
was hot, throttled or busy during the measurement is measured again.
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
"""Largest size of an answer, which contains the time of every call."""
LONGEST_S = 3 * 3600.0
PAUSES_S = (5.0, 15.0, 45.0)
"""Pauses before a device is measured again after a noisy measurement, so that it cools down and services finish."""
MOST_REASONS = 20
MOST_AT_ONCE = 32
"""Devices that are measured at the same time."""


@dataclass(frozen=True)
class BenchmarkBundle:
    """A bundle to be timed: its name among the variants, its target and its bytes."""

    name: str
    target: str
    sha256: str
    data: bytes


@dataclass(frozen=True)
class BenchmarkPlan:
    """The numbers of rounds and calls. `threads` applies to every interpreter."""

    rounds: int
    calls_per_round: int
    warmup_per_round: int
    threads: int

    def options(self) -> list[str]:
        """Return the options of `edgerun bench`."""
        calls = self.rounds * self.calls_per_round
        numbers = {
            "--rounds": self.rounds,
            "--calls": calls,
            "--warmup": self.warmup_per_round,
            "--threads": self.threads,
        }
        words = [word for name, value in numbers.items() for word in (name, str(value))]
        return [*words, "--no-trial", "--json", "--samples"]


@dataclass(frozen=True)
class DeviceMeasurement:
    """The result of a measurement on a device.

    `samples_ms` has the time of every call of each variant, (rounds * calls,), by the variant's name. Each bundle was
    opened `openings` times, with the same number of calls after each opening. `machine` describes the device, and
    `interpreters` has the interpreter of each variant. `disturbed` lists the reasons not to rely on the measurement.
    """

    samples_ms: Mapping[str, np.ndarray]
    openings: int
    machine: Mapping[str, str]
    interpreters: Mapping[str, str]
    disturbed: tuple[str, ...]


def check_hosts(hosts: Sequence[Host]) -> None:
    """Check that each device answers and has a Python that can run the runner. Errors are those of `time_on_hosts`."""
    runner = RunnerFile.build()

    async def check(network: Network, host: Host) -> None:
        async with DeviceSession(network, host) as session:
            _check_unsigned(await say_hello(session, runner.sha256))

    _run_on_hosts(hosts, check)


def time_on_hosts(
    hosts: Sequence[Host],
    bundles: Sequence[BenchmarkBundle],
    plan: BenchmarkPlan,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, DeviceMeasurement]:
    """Return what each host measured, by its name. Many hosts measure at the same time, as they are different machines.

    Raises
    ------
    Unreachable, LoginRefused, HostKeyError, DeviceError
        The measurement on a host failed; the message begins with the host's name.
    """
    supplies = Supplies(RunnerFile.build())

    def measure(network: Network, host: Host) -> Awaitable[DeviceMeasurement]:
        return _measure_on_host(network, host, bundles, plan, supplies, say)

    return dict(zip((host.name for host in hosts), _run_on_hosts(hosts, measure), strict=True))


def _run_on_hosts(hosts: Sequence[Host], work: Callable[[Network, Host], Awaitable[T]]) -> list[T]:
    """Run the work on every host, up to `MOST_AT_ONCE` at a time. If it fails on one host, the others are cancelled."""

    async def run_all() -> list[T]:
        network, slots = Network(), asyncio.Semaphore(MOST_AT_ONCE)

        async def run_one(host: Host) -> T:
            async with slots:
                try:
                    return await work(network, host)
                except EdgekitError as error:
                    error.args = (f"{host.name}: {error}",)
                    raise

        tasks = [asyncio.create_task(run_one(host)) for host in hosts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return _run_in_thread(run_all)


async def _measure_on_host(
    network: Network,
    host: Host,
    bundles: Sequence[BenchmarkBundle],
    plan: BenchmarkPlan,
    supplies: Supplies,
    say: Callable[[str], object],
) -> DeviceMeasurement:
    async with DeviceSession(network, host) as session:
        hello = await say_hello(session, supplies.runner.sha256)
        _check_unsigned(hello)
        for target in sorted({each.target for each in bundles}):
            edgerun, hello = await supply(session, hello, supplies, target, sum(len(each.data) for each in bundles))
        temporary = [TemporaryBundle(FileContent(each.data, each.sha256)) for each in bundles]
        async with temporary_bundles(session, hello, temporary) as paths:
            return await _measure_until_quiet(session, edgerun, paths, bundles, plan, say)


def _check_unsigned(hello: HelloFacts) -> None:
    if hello.status is not None and hello.status.signed:
        raise DeviceError(
            "is in signed mode (it has a trust policy), so it cannot time variants; choose devices that have no trust "
            "policy",
            8,
        )


async def _measure_until_quiet(
    session: DeviceSession,
    edgerun: Edgerun,
    paths: Sequence[str],
    bundles: Sequence[BenchmarkBundle],
    plan: BenchmarkPlan,
    say: Callable[[str], object],
) -> DeviceMeasurement:
    """Return the first measurement that is not noisy. If every one was noisy, return the last, with the reasons."""
    for pause_s in (*PAUSES_S, None):
        answer = await edgerun.bench(*paths, *plan.options(), within_s=LONGEST_S, most=MOST_BYTES)
        measurement = _parse_answer(answer, bundles, plan)
        if not measurement.disturbed or pause_s is None:
            return measurement
        say(
            f"the measurement on {session.host.name} was noisy ({measurement.disturbed[0]}); measuring "
            f"again in {pause_s:g} s"
        )
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")


def _parse_answer(answer: CommandResult, bundles: Sequence[BenchmarkBundle], plan: BenchmarkPlan) -> DeviceMeasurement:
    """Parse `edgerun bench --json --samples`. Raises DeviceError unless it is about exactly these bundles and calls."""
    lines = [line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    values = device_json.parse_object(lines[-1] if lines else "")
    rows = values.get("bundles")
    if not isinstance(rows, list) or len(rows) != len(bundles):
        raise DeviceError("timed other bundles than those requested", MALFORMED_ANSWER)
    samples, interpreters = {}, {}
    for row, bundle in zip(rows, bundles, strict=True):
        if not isinstance(row, dict) or row.get("sha256") != bundle.sha256:
            raise DeviceError(f"timed another file than {bundle.name}", MALFORMED_ANSWER)
        samples[bundle.name] = _samples_ms(row.get("samples_ns"), plan)
        version = device_json.get_text(row, "version", 40)
        interpreters[bundle.name] = f"{device_json.get_text(row, 'interpreter', 40)} {version}".strip()
    openings = device_json.get_count(values, "openings")
    if openings < MIN_ROUNDS or plan.rounds % openings:
        raise DeviceError(
            f"reported {openings} openings of each file in {plan.rounds} rounds; there must be at least {MIN_ROUNDS} "
            "openings, and the rounds must divide evenly among them",
            MALFORMED_ANSWER,
        )
    machine = values.get("machine")
    if not isinstance(machine, dict):
        raise DeviceError("timed the files, but did not report what machine it is", MALFORMED_ANSWER)
    facts = {key: device_json.get_text(machine, key, 100) for key in MACHINE}
    why = tuple(device_json.get_texts(values, "why")[:MOST_REASONS])
    return DeviceMeasurement(samples, openings, facts, interpreters, why)


MACHINE = ("host", "cpu", "machine", "system", "python", "numpy")


def _samples_ms(values: Any, plan: BenchmarkPlan) -> np.ndarray:
    count = plan.rounds * plan.calls_per_round
    if not isinstance(values, list) or len(values) != count or not all(map(device_json.is_count, values)):
        raise DeviceError(f"did not report the times of {count} calls", MALFORMED_ANSWER)
    samples_ms = np.asarray(values, dtype=np.float64) / 1e6
    if np.median(samples_ms) <= 0:
        raise DeviceError("reported calls that took no time", MALFORMED_ANSWER)
    return samples_ms


def _run_in_thread(work: Callable[[], Awaitable[T]]) -> T:
    """Run the work in a thread with an event loop of its own, because a notebook's kernel already runs one.

    Ctrl-C cancels the work.
    """
    results: list[T | BaseException] = []
    loop = asyncio.new_event_loop()

    async def as_task() -> None:
        try:
            results.append(await work())
        except BaseException as error:  # raised again in the thread that waits
            results.append(error)

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
    (result,) = results
    if isinstance(result, BaseException):
        raise result
    return result
