"""The runner and the wheels that are sent to real devices, and what is not sent again."""

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
from tests.fleet.devices import sessions
from tests.fleet.devices.rig import Rig
from tests.fleet.devices.wheel_files import wheel

pytestmark = pytest.mark.fleet

SYSTEM = "/usr/bin/python3"


def supply_device(
    rig: Rig,
    number: int,
    folder: Path | None,
    target: str | None = "onnx",
    python: str = SYSTEM,
    launch: bool = False,
    runner: RunnerFile | None = None,
) -> HelloFacts:
    async def work(session: DeviceSession) -> HelloFacts:
        found = await say_hello(session, (runner or sessions.runner()).sha256)
        return (await supply(session, found, Supplies(runner or sessions.runner(), folder), target, launch=launch))[1]

    return sessions.run_session(sessions.host(rig, number, python=python), work)


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    """numpy and ONNX Runtime, by name at least."""
    wheel(tmp_path, "numpy-2.1.0", numpy="version = '2.1.0'")
    wheel(tmp_path, "onnxruntime-1.20.0", needs=("flatbuffers",), onnxruntime="import flatbuffers")
    wheel(tmp_path, "flatbuffers-25.1", flatbuffers__x="", **{"flatbuffers-25.1.data__purelib__more": "value = 'more'"})
    return tmp_path


def test_a_device_without_numpy_gets_wheels_and_no_more_than_once(rig: Rig, wheelhouse: Path) -> None:
    found = supply_device(rig, 0, wheelhouse)
    assert found.distributions["numpy"] == "2.1.0" and len(found.packages) == 3
    inodes = [os.stat(path).st_ino for path in found.packages]
    again = supply_device(rig, 0, None)
    assert again.packages == found.packages and [os.stat(path).st_ino for path in again.packages] == inodes
    assert not list((rig.device(0) / ".edge" / "fleet").glob("*.whl"))
    wheel(wheelhouse, "openvino-2025.1")
    more = supply_device(rig, 0, wheelhouse, "openvino")
    assert len(more.packages) == 4 and {*found.packages} < {*more.packages}, "what was brought before stays"


def test_the_launcher_starts_the_runner_with_what_was_brought(rig: Rig, wheelhouse: Path) -> None:
    found = supply_device(rig, 1, wheelhouse, launch=True)
    launcher = rig.device(1) / ".edge" / "edgerun"
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(rig.device(1))}
    done = subprocess.run([launcher, "status"], capture_output=True, text=True, env=bare)
    assert done.stdout == f"no release in {found.home}\n", done.stderr
    done = subprocess.run([launcher, "doctor", "--json"], capture_output=True, text=True, env=bare)
    assert '"numpy": "2.1.0"' in done.stdout
    (rig.device(1) / "link").symlink_to(launcher)
    assert subprocess.run([rig.device(1) / "link", "status"], capture_output=True, env=bare).returncode == 0


def test_without_wheels_what_lacks_is_named(rig: Rig) -> None:
    with pytest.raises(
        DeviceError, match=r"lacks numpy and onnxruntime .*send wheels with `edgekit fleet push --wheels DIR`"
    ) as caught:
        supply_device(rig, 2, None)
    assert caught.value.exit_code == 5 and not (rig.device(2) / ".edge").exists()


def test_runners_of_old_go_and_the_newest_stay(rig: Rig) -> None:
    for number in range(5):
        runner = RunnerFile(sessions.runner().data + bytes(number), f"{number}" * 64)
        (rig.device(3) / ".edge" / "fleet").mkdir(parents=True, exist_ok=True)
        (rig.device(3) / ".edge").chmod(0o700)
        (rig.device(3) / ".edge" / "fleet").chmod(0o700)
        path = rig.device(3) / ".edge" / "fleet" / f"{runner.sha256}.pyz"
        path.write_bytes(runner.data)
        os.utime(path, (number, number))
    supply_device(rig, 3, None, None)
    left = {path.stem for path in (rig.device(3) / ".edge" / "fleet").glob("*.pyz")}
    assert left == {"3" * 64, "4" * 64, sessions.runner().sha256}


def another_runner() -> RunnerFile:
    """One that does the same, of another version."""
    data = sessions.runner().data + b"\0"
    return RunnerFile(data, hashlib.sha256(data).hexdigest())


def test_only_a_push_turns_the_launcher_and_what_it_starts_stays(rig: Rig) -> None:
    edge = rig.device(1) / ".edge"
    ours, theirs = sessions.runner(), another_runner()
    supply_device(rig, 1, None, None, launch=True)
    assert ours.sha256 in (edge / "edgerun").read_text()
    found = supply_device(rig, 1, None, None, runner=theirs)
    assert found.runner and found.edgerun == theirs.sha256 and found.launched == ours.sha256
    assert ours.sha256 in (edge / "edgerun").read_text()
    for number in range(5):  # newer ones, so that ours is the oldest
        path = edge / "fleet" / f"{number}{'f' * 63}.pyz"
        path.write_bytes(b"")
    (edge / "fleet" / f"{theirs.sha256}.pyz").unlink()
    supply_device(rig, 1, None, None, runner=theirs)
    assert (edge / "fleet" / f"{ours.sha256}.pyz").exists(), "services start it"
    sent = (edge / "fleet" / f"{theirs.sha256}.pyz").stat().st_ino
    assert supply_device(rig, 1, None, None, runner=theirs, launch=True).launched == theirs.sha256
    assert (edge / "fleet" / f"{theirs.sha256}.pyz").stat().st_ino == sent, "it was not brought again"


def test_hello_is_answered_by_any_runner_the_one_of_services_before_others(rig: Rig) -> None:
    ours, theirs = sessions.runner(), another_runner()
    supply_device(rig, 3, None, None, launch=True, runner=theirs)
    supply_device(rig, 3, None, None, runner=ours)
    for requested, answers in ((ours.sha256, ours), (theirs.sha256, theirs), ("", theirs), ("e" * 64, theirs)):
        found = sessions.run_session(
            sessions.host(rig, 3, python=SYSTEM), lambda session, requested=requested: say_hello(session, requested)
        )
        assert found.edgerun == answers.sha256 and found.status is not None
        assert found.runner == (requested == answers.sha256)


def test_too_little_free_space_is_reported_with_all_that_is_needed(rig: Rig) -> None:
    async def work(session: DeviceSession) -> None:
        found = replace(await say_hello(session, sessions.runner().sha256), runner=False, free_bytes=1_000_000)
        await supply(session, found, Supplies(sessions.runner()), None, room_bytes=500_000)

    needed_bytes = len(sessions.runner().data) + 500_000 + (4 << 20)
    with pytest.raises(DeviceError, match=f"1,000,000 bytes are free .* {needed_bytes:,} are needed"):
        sessions.run_session(sessions.host(rig, 1), work)


def test_two_workstations_bring_the_same_runner_at_once(rig: Rig) -> None:
    async def both() -> list[tuple[Edgerun, HelloFacts]]:
        network, where = Network(), sessions.host(rig, 0, home="~/both")

        async def one() -> tuple[Edgerun, HelloFacts]:
            async with DeviceSession(network, where) as session:
                return await sessions.supply_runner(session)

        return await asyncio.gather(*(one() for _ in range(4)))

    assert all(found.runner for _, found in asyncio.run(both()))


def test_a_home_that_cannot_be_created_is_an_error(rig: Rig) -> None:
    with pytest.raises(
        DeviceError, match="^/dev/null: is not a folder, so no folder can be created in it; name another"
    ) as caught:
        sessions.run_session(sessions.host(rig, 0, home="/dev/null/x"), sessions.supply_runner)
    assert caught.value.exit_code == 7


def test_a_runner_that_was_changed_there_is_brought_again(rig: Rig) -> None:
    supply_device(rig, 2, None, None)
    (path,) = (rig.device(2) / ".edge" / "fleet").glob("*.pyz")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"more")
    assert supply_device(rig, 2, None, None).runner
    assert path.read_bytes() == sessions.runner().data
