"""Send a device what it lacks: the runner, identified by its digest, and wheels for its Python."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgekit.device import pyz
from edgekit.device.doctor import wheels as known
from edgekit.fleet.devices import upload, wheels
from edgekit.fleet.devices.commands import Edgerun, remote_program, say_hello
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.wheels import Wheel

SPARE_BYTES = 4 << 20
"""Free space that is needed besides what is sent, for records and compiled code."""
UNPACKED_FACTOR = 5
"""A wheel needs up to this many times its size: for the archive and the unpacked files together."""
NO_ROOM, NO_INTERPRETER = 7, 5
UNPACK_S = 600.0


@dataclass(frozen=True)
class FileContent:
    """Bytes and their digest."""

    data: bytes
    sha256: str


@dataclass(frozen=True)
class RunnerFile(FileContent):
    """The runner of this edgekit."""

    @classmethod
    def build(cls) -> RunnerFile:
        """Build the runner from the sources that are installed here."""
        with tempfile.TemporaryDirectory(prefix="edgekit-runner-") as folder:
            path = Path(folder) / "edgerun.pyz"
            sha256 = pyz.build(path)
            return cls(path.read_bytes(), sha256)


class Supplies:
    """What this machine can send: the runner, and a folder of wheels."""

    def __init__(self, runner: RunnerFile, folder: Path | None = None) -> None:
        self.runner, self.folder = runner, folder
        self._files: dict[Path, FileContent] = {}

    @cached_property
    def wheels(self) -> list[Wheel]:
        """The wheels of the folder, read once."""
        return wheels.read_folder(self.folder) if self.folder else []

    def file(self, wheel: Wheel) -> FileContent:
        """Return a wheel's bytes, read once for all devices."""
        if wheel.path not in self._files:
            data = wheel.path.read_bytes()
            self._files[wheel.path] = FileContent(data, hashlib.sha256(data).hexdigest())
        return self._files[wheel.path]


async def supply(
    session: DeviceSession,
    hello: HelloFacts,
    supplies: Supplies,
    target: str | None,
    room_bytes: int = 0,
    launch: bool = False,
) -> tuple[Edgerun, HelloFacts]:
    """Send the runner, and the packages that a bundle of this target needs, if the device lacks them.

    If `target` is None, only the runner is sent. Afterwards there must be room for another `room_bytes`. With `launch`,
    the services on the device start this runner from then on. Returns the runner and the new facts about the device.

    Raises
    ------
    DeviceError
        There is not enough room, or no interpreter can be sent.
    """
    chosen = _chosen(hello, supplies, target)
    needed_bytes = sum(wheel.path.stat().st_size for wheel in chosen) * UNPACKED_FACTOR
    needed_bytes += 0 if hello.runner else len(supplies.runner.data)
    needed_bytes += room_bytes + (SPARE_BYTES if needed_bytes else 0)
    if hello.free_bytes is not None and hello.free_bytes < needed_bytes:
        raise DeviceError(
            f"{hello.free_bytes:,} bytes are free in {hello.home}, but {needed_bytes:,} are needed in all; "
            "`edgerun gc` there removes old releases",
            NO_ROOM,
        )
    runner = supplies.runner
    is_new = not hello.runner or (launch and hello.launched != runner.sha256)
    if is_new:
        await put_file(session, hello, runner, f"{runner.sha256}.pyz", launch, len(runner.data) if hello.runner else 0)
    files = [supplies.file(wheel) for wheel in chosen]
    for file in files:
        await put_file(session, hello, file, f"{file.sha256}.whl")
    if files:
        await _unpack(session, hello, [file.sha256 for file in files])
    if files or is_new:
        hello = await say_hello(session, runner.sha256)
        if not hello.runner:
            raise DeviceError("accepted the runner, but does not have it; check that device", 8)
    return Edgerun(session, hello, runner.sha256), hello


def _chosen(hello: HelloFacts, supplies: Supplies, target: str | None) -> list[Wheel]:
    missing = wheels.missing_distributions(hello, target) if target else []
    if not target or not missing:
        return []
    if supplies.folder is None:
        names = ", ".join(known.distribution_of(name) for name in known.interpreters_for(target))
        raise DeviceError(
            f"its {hello.implementation} {hello.dotted} lacks {' and '.join(missing)} (for {target}: "
            f"{names}); install them there, or send wheels with `edgekit fleet push --wheels DIR`",
            NO_INTERPRETER,
        )
    return wheels.choose_wheels(supplies.wheels, hello, target)


async def put_file(
    session: DeviceSession, hello: HelloFacts, file: FileContent, name: str, launch: bool = False, offset: int = 0
) -> None:
    """Send a file that is not part of a release. The first `offset` bytes of it are there already."""

    def command(offset: int | None, acknowledge: int) -> Sequence[str]:
        at = "-1" if offset is None else str(offset)
        numbers = [at, str(len(file.data)), str(acknowledge)]
        mode = "launch" if launch else ""
        return [session.host.python, "-c", remote_program("put"), hello.home, file.sha256, name, mode, *numbers]

    await upload.send_file(session, file.data, command, offset)


async def _unpack(session: DeviceSession, hello: HelloFacts, digests: list[str]) -> None:
    used = [path.rpartition("/")[2] for path in hello.packages]
    unchanged = [name for name in used if not any(digest.startswith(name) for digest in digests)]
    command = [session.host.python, "-c", remote_program("unpack"), hello.home, *digests, *unchanged]
    answer = await session.retry(lambda connection: connection.run(command, within_s=UNPACK_S))
    answer.check()
