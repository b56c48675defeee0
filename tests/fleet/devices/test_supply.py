"""What is brought to real devices, and what is not."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.fleet.devices.commands import Edgerun, say_hello
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import RunnerFile, Supplies, supply
from tests.fleet.devices import desk as desks
from tests.fleet.devices.house import wheel
from tests.fleet.devices.rig import Rig

pytestmark = pytest.mark.fleet

SYSTEM = "/usr/bin/python3"


def supplied(
    rig: Rig,
    number: int,
    folder: Path | None,
    target: str | None = "onnx",
    python: str = SYSTEM,
    launch: bool = False,
    runner: RunnerFile | None = None,
) -> HelloFacts:
    async def work(line: DeviceSession) -> HelloFacts:
        found = await say_hello(line, (runner or desks.runner()).sha256)
        return (await supply(line, found, Supplies(runner or desks.runner(), folder), target, launch=launch))[1]

    return desks.talk(desks.host(rig, number, python=python), work)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """numpy and ONNX Runtime, by name at least."""
    wheel(tmp_path, "numpy-2.1.0", numpy="version = '2.1.0'")
    wheel(tmp_path, "onnxruntime-1.20.0", needs=("flatbuffers",), onnxruntime="import flatbuffers")
    wheel(tmp_path, "flatbuffers-25.1", flatbuffers__x="", **{"flatbuffers-25.1.data__purelib__more": "said = 'more'"})
    return tmp_path


def test_a_device_without_numpy_gets_wheels_and_no_more_than_once(desk: Rig, house: Path) -> None:
    found = supplied(desk, 0, house)
    assert found.distributions["numpy"] == "2.1.0" and len(found.packages) == 3
    inodes = [os.stat(path).st_ino for path in found.packages]
    again = supplied(desk, 0, None)
    assert again.packages == found.packages and [os.stat(path).st_ino for path in again.packages] == inodes
    assert not list((desk.device(0) / ".edge" / "desk").glob("*.whl"))
    wheel(house, "openvino-2025.1")
    more = supplied(desk, 0, house, "openvino")
    assert len(more.packages) == 4 and {*found.packages} < {*more.packages}, "what was brought before stays"


def test_the_launcher_starts_the_runner_with_what_was_brought(desk: Rig, house: Path) -> None:
    found = supplied(desk, 1, house, launch=True)
    launcher = desk.device(1) / ".edge" / "edgerun"
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(desk.device(1))}
    done = subprocess.run([launcher, "status"], capture_output=True, text=True, env=bare)
    assert done.stdout == f"no release in {found.home}\n", done.stderr
    done = subprocess.run([launcher, "doctor", "--json"], capture_output=True, text=True, env=bare)
    assert '"numpy": "2.1.0"' in done.stdout
    (desk.device(1) / "link").symlink_to(launcher)
    assert subprocess.run([desk.device(1) / "link", "status"], capture_output=True, env=bare).returncode == 0


def test_without_wheels_what_lacks_is_named(desk: Rig) -> None:
    with pytest.raises(
        DeviceError, match=r"lacks numpy and onnxruntime .*send wheels with `edgekit fleet push --wheels DIR`"
    ) as caught:
        supplied(desk, 2, None)
    assert caught.value.exit_code == 5 and not (desk.device(2) / ".edge").exists()


def test_runners_of_old_go_and_the_newest_stay(desk: Rig) -> None:
    for number in range(5):
        runner = RunnerFile(desks.runner().data + bytes(number), f"{number}" * 64)
        (desk.device(3) / ".edge" / "desk").mkdir(parents=True, exist_ok=True)
        (desk.device(3) / ".edge").chmod(0o700)
        (desk.device(3) / ".edge" / "desk").chmod(0o700)
        path = desk.device(3) / ".edge" / "desk" / f"{runner.sha256}.pyz"
        path.write_bytes(runner.data)
        os.utime(path, (number, number))
    supplied(desk, 3, None, None)
    left = {path.stem for path in (desk.device(3) / ".edge" / "desk").glob("*.pyz")}
    assert left == {"3" * 64, "4" * 64, desks.runner().sha256}


def another_runner() -> RunnerFile:
    """One that does the same, of another version."""
    data = desks.runner().data + b"\0"
    return RunnerFile(data, hashlib.sha256(data).hexdigest())


def test_only_a_push_turns_the_launcher_and_what_it_starts_stays(desk: Rig) -> None:
    edge = desk.device(1) / ".edge"
    ours, theirs = desks.runner(), another_runner()
    supplied(desk, 1, None, None, launch=True)
    assert ours.sha256 in (edge / "edgerun").read_text()
    found = supplied(desk, 1, None, None, runner=theirs)
    assert found.runner and found.edgerun == theirs.sha256 and found.launched == ours.sha256
    assert ours.sha256 in (edge / "edgerun").read_text()
    for number in range(5):  # newer ones, so that ours is the oldest
        path = edge / "desk" / f"{number}{'f' * 63}.pyz"
        path.write_bytes(b"")
    (edge / "desk" / f"{theirs.sha256}.pyz").unlink()
    supplied(desk, 1, None, None, runner=theirs)
    assert (edge / "desk" / f"{ours.sha256}.pyz").exists(), "services start it"
    sent = (edge / "desk" / f"{theirs.sha256}.pyz").stat().st_ino
    assert supplied(desk, 1, None, None, runner=theirs, launch=True).launched == theirs.sha256
    assert (edge / "desk" / f"{theirs.sha256}.pyz").stat().st_ino == sent, "it was not brought again"


def test_hello_is_answered_by_any_runner_the_one_of_services_before_others(desk: Rig) -> None:
    ours, theirs = desks.runner(), another_runner()
    supplied(desk, 3, None, None, launch=True, runner=theirs)
    supplied(desk, 3, None, None, runner=ours)
    for asked, answers in ((ours.sha256, ours), (theirs.sha256, theirs), ("", theirs), ("e" * 64, theirs)):
        found = desks.talk(desks.host(desk, 3, python=SYSTEM), lambda line, asked=asked: say_hello(line, asked))
        assert found.edgerun == answers.sha256 and found.status is not None
        assert found.runner == (asked == answers.sha256)


def test_room_is_told_with_all_that_is_needed(desk: Rig) -> None:
    async def work(line: DeviceSession) -> None:
        found = replace(await say_hello(line, desks.runner().sha256), runner=False, free_bytes=1_000_000)
        await supply(line, found, Supplies(desks.runner()), None, room_bytes=500_000)

    wanted = len(desks.runner().data) + 500_000 + (4 << 20)
    with pytest.raises(DeviceError, match=f"1,000,000 bytes are free .* {wanted:,} are needed"):
        desks.talk(desks.host(desk, 1), work)


def test_two_desks_bring_the_same_runner_at_once(desk: Rig) -> None:
    async def both() -> list[tuple[Edgerun, HelloFacts]]:
        network, where = Network(), desks.host(desk, 0, home="~/both")

        async def one() -> tuple[Edgerun, HelloFacts]:
            async with DeviceSession(network, where) as line:
                return await desks.ready(line)

        return await asyncio.gather(*(one() for _ in range(4)))

    assert all(found.runner for _, found in asyncio.run(both()))


def test_a_home_that_cannot_be_is_said(desk: Rig) -> None:
    with pytest.raises(
        DeviceError, match="^/dev/null: is not a folder, so no folder can be created in it; name another"
    ) as caught:
        desks.talk(desks.host(desk, 0, home="/dev/null/x"), desks.ready)
    assert caught.value.exit_code == 7


def test_a_runner_that_was_changed_there_is_brought_again(desk: Rig) -> None:
    supplied(desk, 2, None, None)
    (path,) = (desk.device(2) / ".edge" / "desk").glob("*.pyz")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"more")
    assert supplied(desk, 2, None, None).runner
    assert path.read_bytes() == desks.runner().data
