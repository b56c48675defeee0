"""What a device lacks, brought there: the runner by its digest, and wheels for its Python. Nothing that it has."""

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
"""Beside what is brought: for records, and for compiled code."""
UNPACKED_FACTOR = 5
"""Times as large as the archive is a wheel that was unpacked, its archive counted too."""
NO_ROOM, NO_INTERPRETER = 7, 5
UNPACK_S = 600.0


@dataclass(frozen=True)
class FileContent:
    """Bytes and their digest."""

    data: bytes
    sha256: str


@dataclass(frozen=True)
class RunnerFile(FileContent):
    """The one that this edgekit carries."""

    @classmethod
    def build(cls) -> RunnerFile:
        """From the sources that are installed here."""
        with tempfile.TemporaryDirectory(prefix="edgekit-runner-") as folder:
            path = Path(folder) / "edgerun.pyz"
            sha256 = pyz.build(path)
            return cls(path.read_bytes(), sha256)


class Supplies:
    """What the desk can bring: the runner, and a folder of wheels."""

    def __init__(self, runner: RunnerFile, folder: Path | None = None) -> None:
        self.runner, self.folder = runner, folder
        self._files: dict[Path, FileContent] = {}

    @cached_property
    def house(self) -> list[Wheel]:
        """The wheels of the folder, read once."""
        return wheels.read_folder(self.folder) if self.folder else []

    def file(self, wheel: Wheel) -> FileContent:
        """A wheel's bytes, read once for all devices."""
        if wheel.path not in self._files:
            data = wheel.path.read_bytes()
            self._files[wheel.path] = FileContent(data, hashlib.sha256(data).hexdigest())
        return self._files[wheel.path]


async def supply(
    line: DeviceSession,
    found: HelloFacts,
    supplies: Supplies,
    target: str | None,
    room_bytes: int = 0,
    launch: bool = False,
) -> tuple[Edgerun, HelloFacts]:
    """Bring what a bundle of this target lacks there, None: the runner alone. That runner, and what the device is then.

    `room_bytes` are to come behind it. With `launch` the runner is what services start there from then on.

    Raises
    ------
    DeviceError
        There is no room, or nothing to bring an interpreter with.
    """
    chosen = _chosen(found, supplies, target)
    to_come = sum(wheel.path.stat().st_size for wheel in chosen) * UNPACKED_FACTOR
    to_come += 0 if found.runner else len(supplies.runner.data)
    to_come += room_bytes + (SPARE_BYTES if to_come else 0)
    if found.free_bytes is not None and found.free_bytes < to_come:
        raise DeviceError(
            f"{found.free_bytes:,} bytes are free in {found.home}, and {to_come:,} are needed with what is to come; "
            "`edgerun gc` there removes old releases",
            NO_ROOM,
        )
    runner = supplies.runner
    is_new = not found.runner or (launch and found.launched != runner.sha256)
    if is_new:
        await put_file(line, found, runner, f"{runner.sha256}.pyz", launch, len(runner.data) if found.runner else 0)
    files = [supplies.file(wheel) for wheel in chosen]
    for file in files:
        await put_file(line, found, file, f"{file.sha256}.whl")
    if files:
        await _unpack(line, found, [file.sha256 for file in files])
    if files or is_new:
        found = await say_hello(line, runner.sha256)
        if not found.runner:
            raise DeviceError("took the runner, and does not have it; look at that device", 8)
    return Edgerun(line, found, runner.sha256), found


def _chosen(found: HelloFacts, supplies: Supplies, target: str | None) -> list[Wheel]:
    lacking = wheels.missing_distributions(found, target) if target else []
    if not target or not lacking:
        return []
    if supplies.folder is None:
        names = ", ".join(known.distribution_of(name) for name in known.interpreters_for(target))
        raise DeviceError(
            f"its {found.implementation} {found.dotted} lacks {' and '.join(lacking)} (for {target}: {names}); install "
            "there, or bring wheels with `edgekit fleet push --wheels DIR`",
            NO_INTERPRETER,
        )
    return wheels.choose_wheels(supplies.house, found, target)


async def put_file(
    line: DeviceSession, found: HelloFacts, file: FileContent, name: str, launch: bool = False, offset: int = 0
) -> None:
    """A file beside the releases, which no release is made of; `offset` bytes of it are there already."""

    def command(offset: int | None, acknowledge: int) -> Sequence[str]:
        at = "-1" if offset is None else str(offset)
        numbers = [at, str(len(file.data)), str(acknowledge)]
        how = "launch" if launch else ""
        return [line.host.python, "-c", remote_program("put"), found.home, file.sha256, name, how, *numbers]

    await upload.send_file(line, file.data, command, offset)


async def _unpack(line: DeviceSession, found: HelloFacts, digests: list[str]) -> None:
    used = [path.rpartition("/")[2] for path in found.packages]
    kept = [name for name in used if not any(digest.startswith(name) for digest in digests)]
    command = [line.host.python, "-c", remote_program("unpack"), found.home, *digests, *kept]
    answer = await line.retry(lambda connection: connection.run(command, within_s=UNPACK_S))
    answer.check()
