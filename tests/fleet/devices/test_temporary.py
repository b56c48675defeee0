"""Bundles that are on a device only while they are timed, and measurements that end with the connection."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.fleet.devices import commands
from edgekit.fleet.devices.commands import Edgerun
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import FileContent
from edgekit.fleet.devices.temporary import TemporaryBundle, temporary_bundles
from tests.device.releases import device
from tests.fleet.devices import sessions
from tests.fleet.devices.proxy import Proxy
from tests.fleet.devices.rig import Rig, address, running

pytestmark = pytest.mark.fleet

FOREVER = ("--calls", "3000000", "--no-trial", "--json")


def file(data: bytes) -> FileContent:
    return FileContent(data, hashlib.sha256(data).hexdigest())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> TemporaryBundle:
    path = device.write(tmp_path_factory.mktemp("bundle") / "tiny-onnx-1.0.0.edge.zip")
    return TemporaryBundle(file(path.read_bytes()), file(b"statement"), (file(b"first"), file(b"second")))


@pytest.fixture(autouse=True)
def no_measurement_left(rig: Rig) -> Iterator[None]:
    yield
    for number in range(4):
        assert not running_benchmarks(rig, number), "nothing is left at work on a device"


def temporary_files(rig: Rig, number: int = 0) -> list[str]:
    """Return the names of the temporary files on a device."""
    folder = rig.device(number) / ".edge" / "fleet" / "temporary"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def running_benchmarks(rig: Rig, number: int = 0) -> list[int]:
    """Return the processes that are measuring on a device."""
    return running(rig.device(number) / ".edge" / "fleet" / f"{sessions.runner().sha256}.pyz", "bench")


async def until(true: Callable[[], Any], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def with_temporary_bundle(
    rig: Rig,
    bundle: TemporaryBundle,
    work: Callable[[DeviceSession, Edgerun, list[str]], Awaitable[object]],
    **host: Any,
) -> None:
    """Run `work` while a bundle is in the temporary folder of the first device."""

    async def on(session: DeviceSession) -> None:
        edgerun, found = await sessions.supply_runner(session)
        async with temporary_bundles(session, found, [bundle]) as paths:
            await work(session, edgerun, paths)

    sessions.run_session(sessions.host(rig, **host), on)


def test_the_bundle_is_there_with_its_signatures_and_is_removed_afterwards(rig: Rig, bundle: TemporaryBundle) -> None:
    name = f"{bundle.bundle.sha256}.edge.zip"

    async def look(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        assert Path(paths[0]).read_bytes() == bundle.bundle.data and paths[0].endswith(f"/{name}")
        signed = [f"{name}.intoto.json", f"{name}.intoto.json.sig", f"{name}.intoto.json.sig.2"]
        assert temporary_files(rig) == sorted([name, *signed])
        assert Path(f"{paths[0]}.intoto.json.sig.2").read_bytes() == b"second"
        answer = await edgerun.bench(paths[0], "--calls", "20", "--no-trial", "--json", within_s=60)
        assert b"p50_ms" in answer.stdout

    with_temporary_bundle(rig, bundle, look)
    assert not temporary_files(rig) and not list((rig.device(0) / ".edge").glob("store/*"))


def test_it_is_removed_after_a_failure_or_an_interrupt_with_what_others_abandoned(
    rig: Rig, bundle: TemporaryBundle
) -> None:
    async def fail(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        abandoned = Path(paths[0]).parent.parent / "abandoned"
        abandoned.mkdir()
        os.utime(abandoned, (1, 1))
        (abandoned.parent / "anothers").mkdir(exist_ok=True)
        await edgerun.bench("/no/such/file", within_s=60)

    with pytest.raises(DeviceError, match="/no/such/file"):
        with_temporary_bundle(rig, bundle, fail)
    folder = rig.device(0) / ".edge" / "fleet" / "temporary"
    assert {path.name for path in folder.iterdir()} == {"anothers"}

    async def interrupted(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        with_temporary_bundle(rig, bundle, interrupted)
    assert {path.name for path in folder.iterdir()} == {"anothers"}


def test_a_release_of_the_device_is_used_where_it_lies(rig: Rig, bundle: TemporaryBundle) -> None:
    unsigned = TemporaryBundle(bundle.bundle)

    async def on(session: DeviceSession) -> None:
        edgerun, found = await sessions.supply_runner(session)
        await edgerun.receive(bundle.bundle.sha256, bundle.bundle.data)
        found = replace(found, status=await edgerun.install(bundle.bundle.sha256, None, (), ()))
        async with temporary_bundles(session, found, [unsigned]) as paths:
            assert paths == [str(rig.device(1) / ".edge" / "releases" / "1" / "bundle.edge.zip")]
            await edgerun.bench(paths[0], "--calls", "20", "--no-trial", within_s=60)
        assert Path(paths[0]).exists() and not temporary_files(rig, 1)
        refused = replace(found, status=replace(found.status, refused="damaged")) if found.status else found
        async with temporary_bundles(session, refused, [unsigned]) as paths:
            assert "/temporary/" in paths[0]
        async with temporary_bundles(session, found, [bundle]) as paths:
            assert "/temporary/" in paths[0], "the release has no statement beside it"

    sessions.run_session(sessions.host(rig, 1), on)


def test_an_unsigned_one_is_not_sent_to_a_device_in_signed_mode(rig: Rig, bundle: TemporaryBundle) -> None:
    async def on(session: DeviceSession) -> None:
        _, found = await sessions.supply_runner(session)
        signed = replace(found, status=ReleaseStatus(signed=True))
        with pytest.raises(DeviceError, match="is in signed mode, but this bundle is not signed") as caught:
            async with temporary_bundles(session, signed, [TemporaryBundle(bundle.bundle)]):
                pass
        assert caught.value.exit_code == 8 and not temporary_files(rig)
        async with temporary_bundles(session, signed, [bundle]):
            assert len(temporary_files(rig)) == 4

    sessions.run_session(sessions.host(rig), on)


def test_a_second_measurement_is_refused_in_a_line_while_one_runs(
    rig: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "PATIENCE_S", 0.5)

    async def twice(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        first = asyncio.create_task(edgerun.bench(*paths, *FOREVER, within_s=600))
        await until(lambda: running_benchmarks(rig))
        with pytest.raises(
            DeviceError, match=r"another measurement is running on this device \(process \d+\)"
        ) as caught:
            await edgerun.bench(*paths, *FOREVER, within_s=600)
        assert caught.value.exit_code == 7 and len(running_benchmarks(rig)) == 1
        first.cancel()
        await until(lambda: not running_benchmarks(rig))
        await edgerun.bench(*paths, "--calls", "20", "--no-trial", within_s=60)

    with_temporary_bundle(rig, bundle, twice)


def test_a_measurement_ends_with_the_connection_and_after_its_time(rig: Rig, bundle: TemporaryBundle) -> None:
    async def cut(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        task = asyncio.create_task(edgerun.bench(*paths, *FOREVER, within_s=600))
        await until(lambda: running_benchmarks(rig))
        task.cancel()
        session.drop()
        await until(lambda: not running_benchmarks(rig), 20)
        with pytest.raises(Exception, match="no answer within 2 s"):
            await edgerun.bench(*paths, *FOREVER, within_s=2)
        await until(lambda: not running_benchmarks(rig), 20)

    with_temporary_bundle(rig, bundle, cut)


def test_a_silent_connection_ends_the_measurement_too(
    rig: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SILENCE_S", 1.0)

    async def silent(session: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        with pytest.raises(
            DeviceError, match="nothing was received from the workstation, so the measurement was stopped"
        ):
            await edgerun.bench(*paths, *FOREVER, within_s=60)
        assert not running_benchmarks(rig)

    with_temporary_bundle(rig, bundle, silent)


def test_connections_that_are_cut_never_leave_two_measurements(
    rig: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "BEAT_S", 0.01)  # so that a cut comes soon
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(running_benchmarks(rig)))
            await asyncio.sleep(0.05)

    async def on(session: DeviceSession) -> tuple[Edgerun, HelloFacts]:
        return await sessions.supply_runner(session)

    _, found = sessions.run_session(sessions.host(rig), on)

    async def cut() -> None:
        watching = asyncio.create_task(watch())
        with Proxy(address(0), rig.port, cut_bytes=9000, cuts=3) as proxy:
            rig.know((address(0), proxy.port))
            direct = sessions.host(rig)
            shaky = replace(direct, port=proxy.port)
            async with (
                DeviceSession(Network(), direct) as direct_session,
                temporary_bundles(direct_session, found, [bundle]) as paths,
                DeviceSession(Network(), shaky) as session,
            ):
                calls = ("--calls", "120000", "--no-trial", "--json")
                answer = await Edgerun(session, found, found.edgerun).bench(*paths, *calls, within_s=300)
                assert session.cuts == proxy.cuts >= 1 and b"p50_ms" in answer.stdout  # how many, the pace decides
        watching.cancel()

    asyncio.run(cut())
    assert most == 1
