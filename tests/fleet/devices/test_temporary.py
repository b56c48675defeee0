"""Bundles that lie on a real device while they are timed, and no longer; and measurements that end with their desk."""

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
from tests.fleet.devices import desk as desks
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
def sound(desk: Rig) -> Iterator[None]:
    yield
    for number in range(4):
        assert not benches(desk, number), "nothing is left at work on a device"


def lying(rig: Rig, number: int = 0) -> list[str]:
    """What lies there for a while."""
    folder = rig.device(number) / ".edge" / "desk" / "temporary"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def benches(rig: Rig, number: int = 0) -> list[int]:
    """Processes that measure on a device at this moment."""
    return running(rig.device(number) / ".edge" / "desk" / f"{desks.runner().sha256}.pyz", "bench")


async def until(true: Callable[[], Any], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def measured(
    rig: Rig,
    bundle: TemporaryBundle,
    work: Callable[[DeviceSession, Edgerun, list[str]], Awaitable[object]],
    **host: Any,
) -> None:
    """Do something with a bundle that lies on the first device for a while."""

    async def on(line: DeviceSession) -> None:
        edgerun, found = await desks.ready(line)
        async with temporary_bundles(line, found, [bundle]) as paths:
            await work(line, edgerun, paths)

    desks.talk(desks.host(rig, **host), on)


def test_it_lies_there_with_what_signs_it_and_is_removed_behind(desk: Rig, bundle: TemporaryBundle) -> None:
    name = f"{bundle.bundle.sha256}.edge.zip"

    async def look(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        assert Path(paths[0]).read_bytes() == bundle.bundle.data and paths[0].endswith(f"/{name}")
        signed = [f"{name}.intoto.json", f"{name}.intoto.json.sig", f"{name}.intoto.json.sig.2"]
        assert lying(desk) == sorted([name, *signed])
        assert Path(f"{paths[0]}.intoto.json.sig.2").read_bytes() == b"second"
        answer = await edgerun.bench(paths[0], "--calls", "20", "--no-trial", "--json", within_s=60)
        assert b"p50_ms" in answer.stdout

    measured(desk, bundle, look)
    assert not lying(desk) and not list((desk.device(0) / ".edge").glob("store/*"))


def test_also_where_the_work_fails_or_is_interrupted_and_what_was_abandoned_goes_with_it(
    desk: Rig, bundle: TemporaryBundle
) -> None:
    async def fail(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        abandoned = Path(paths[0]).parent.parent / "abandoned"
        abandoned.mkdir()
        os.utime(abandoned, (1, 1))
        (abandoned.parent / "anothers").mkdir(exist_ok=True)
        await edgerun.bench("/no/such/file", within_s=60)

    with pytest.raises(DeviceError, match="/no/such/file"):
        measured(desk, bundle, fail)
    folder = desk.device(0) / ".edge" / "desk" / "temporary"
    assert {path.name for path in folder.iterdir()} == {"anothers"}

    async def interrupted(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        measured(desk, bundle, interrupted)
    assert {path.name for path in folder.iterdir()} == {"anothers"}


def test_a_release_of_the_device_is_used_where_it_lies(desk: Rig, bundle: TemporaryBundle) -> None:
    unsigned = TemporaryBundle(bundle.bundle)

    async def on(line: DeviceSession) -> None:
        edgerun, found = await desks.ready(line)
        await edgerun.receive(bundle.bundle.sha256, bundle.bundle.data)
        found = replace(found, status=await edgerun.install(bundle.bundle.sha256, None, (), ()))
        async with temporary_bundles(line, found, [unsigned]) as paths:
            assert paths == [str(desk.device(1) / ".edge" / "releases" / "1" / "bundle.edge.zip")]
            await edgerun.bench(paths[0], "--calls", "20", "--no-trial", within_s=60)
        assert Path(paths[0]).exists() and not lying(desk, 1)
        refused = replace(found, status=replace(found.status, refused="damaged")) if found.status else found
        async with temporary_bundles(line, refused, [unsigned]) as paths:
            assert "/temporary/" in paths[0]
        async with temporary_bundles(line, found, [bundle]) as paths:
            assert "/temporary/" in paths[0], "the release has no statement beside it"

    desks.talk(desks.host(desk, 1), on)


def test_an_unsigned_one_is_not_sent_to_a_device_in_signed_mode(desk: Rig, bundle: TemporaryBundle) -> None:
    async def on(line: DeviceSession) -> None:
        _, found = await desks.ready(line)
        signed = replace(found, status=ReleaseStatus(signed=True))
        with pytest.raises(DeviceError, match="is in signed mode, but this bundle is not signed") as caught:
            async with temporary_bundles(line, signed, [TemporaryBundle(bundle.bundle)]):
                pass
        assert caught.value.exit_code == 8 and not lying(desk)
        async with temporary_bundles(line, signed, [bundle]):
            assert len(lying(desk)) == 4

    desks.talk(desks.host(desk), on)


def test_a_second_measurement_is_refused_in_a_line_while_one_runs(
    desk: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "PATIENCE_S", 0.5)

    async def twice(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        first = asyncio.create_task(edgerun.bench(*paths, *FOREVER, within_s=600))
        await until(lambda: benches(desk))
        with pytest.raises(
            DeviceError, match=r"another measurement is running on this device \(process \d+\)"
        ) as caught:
            await edgerun.bench(*paths, *FOREVER, within_s=600)
        assert caught.value.exit_code == 7 and len(benches(desk)) == 1
        first.cancel()
        await until(lambda: not benches(desk))
        await edgerun.bench(*paths, "--calls", "20", "--no-trial", within_s=60)

    measured(desk, bundle, twice)


def test_it_ends_with_the_line_and_with_its_time(desk: Rig, bundle: TemporaryBundle) -> None:
    async def cut(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        task = asyncio.create_task(edgerun.bench(*paths, *FOREVER, within_s=600))
        await until(lambda: benches(desk))
        task.cancel()
        line.drop()
        await until(lambda: not benches(desk), 20)
        with pytest.raises(Exception, match="no answer within 2 s"):
            await edgerun.bench(*paths, *FOREVER, within_s=2)
        await until(lambda: not benches(desk), 20)

    measured(desk, bundle, cut)


def test_a_line_that_is_silent_ends_it_too(desk: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SILENCE_S", 1.0)

    async def silent(line: DeviceSession, edgerun: Edgerun, paths: list[str]) -> None:
        with pytest.raises(
            DeviceError, match="nothing was received from the workstation, so the measurement was stopped"
        ):
            await edgerun.bench(*paths, *FOREVER, within_s=60)
        assert not benches(desk)

    measured(desk, bundle, silent)


def test_through_lines_that_are_cut_there_is_never_more_than_one(
    desk: Rig, bundle: TemporaryBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "BEAT_S", 0.01)  # so that a cut comes soon
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(benches(desk)))
            await asyncio.sleep(0.05)

    async def on(line: DeviceSession) -> tuple[Edgerun, HelloFacts]:
        return await desks.ready(line)

    _, found = desks.talk(desks.host(desk), on)

    async def cut() -> None:
        watching = asyncio.create_task(watch())
        with Proxy(address(0), desk.port, cut_bytes=9000, cuts=3) as proxy:
            desk.know((address(0), proxy.port))
            direct = desks.host(desk)
            shaky = replace(direct, port=proxy.port)
            async with (
                DeviceSession(Network(), direct) as sound,
                temporary_bundles(sound, found, [bundle]) as paths,
                DeviceSession(Network(), shaky) as line,
            ):
                calls = ("--calls", "120000", "--no-trial", "--json")
                answer = await Edgerun(line, found, found.edgerun).bench(*paths, *calls, within_s=300)
                assert line.cuts == proxy.cuts >= 1 and b"p50_ms" in answer.stdout  # how many, the pace decides
        watching.cancel()

    asyncio.run(cut())
    assert most == 1
