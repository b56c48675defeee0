"""Bundles that are sent to a device only to be timed or examined, are not installed, and are removed afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgekit.fleet.devices.commands import FLEET_FOLDER, remote_program
from edgekit.fleet.devices.device_errors import DeviceError, Unreachable
from edgekit.fleet.devices.facts import DeviceRelease, HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import FileContent, put_file

UNSIGNED = 8
FORGET_S = 20.0
BUNDLE, STATEMENT, SIGNATURE = ".edge.zip", ".intoto.json", ".sig"


@dataclass(frozen=True)
class TemporaryBundle:
    """A bundle, with its statement and signatures if it is signed."""

    bundle: FileContent
    statement: FileContent | None = None
    signatures: tuple[FileContent, ...] = ()

    @property
    def files(self) -> dict[str, FileContent]:
        """The files, by the names under which a device looks for them."""
        name = f"{self.bundle.sha256}{BUNDLE}"
        files = {name: self.bundle}
        if self.statement:
            files[f"{name}{STATEMENT}"] = self.statement
        for index, each in enumerate(self.signatures):
            files[f"{name}{STATEMENT}{SIGNATURE}{f'.{index + 1}' if index else ''}"] = each
        return files

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(len(file.data) for file in self.files.values())

    def release(self, status: ReleaseStatus) -> DeviceRelease | None:
        """Return a release that has all of these files and can be loaded, or None."""
        release = status.of(self.bundle.sha256)
        if release is None or release.state == "failed" or (status.refused and release.number == status.current):
            return None
        digests = {file.sha256 for file in self.files.values()} if self.signatures else set()
        return release if release.files >= digests else None

    def check(self, hello: HelloFacts) -> None:
        """Raise DeviceError if the device accepts only signed bundles, but this bundle is not signed."""
        if hello.status is not None and hello.status.signed and not self.signatures:
            raise DeviceError("is in signed mode, but this bundle is not signed; use `edgekit sign`", UNSIGNED)


@contextlib.asynccontextmanager
async def temporary_bundles(
    session: DeviceSession, hello: HelloFacts, bundles: Sequence[TemporaryBundle]
) -> AsyncIterator[list[str]]:
    """Send bundles to a device, and yield their paths there, in order.

    If the device has a release with a bundle, the file of the release is used. Files that were sent are removed at the
    end, also after Ctrl-C.

    Raises
    ------
    DeviceError
        The device accepts only signed bundles, or has no room.
    """
    for each in bundles:
        each.check(hello)
    home, token = PurePosixPath(hello.home), secrets.token_hex(8)
    try:
        paths = []
        for each in bundles:
            release = each.release(hello.status or ReleaseStatus())
            if release is not None:
                paths.append(str(home / "releases" / str(release.number) / f"bundle{BUNDLE}"))
                continue
            for name, file in each.files.items():
                await put_file(session, hello, file, f"temporary/{token}/{name}")
            paths.append(str(home / FLEET_FOLDER / "temporary" / token / f"{each.bundle.sha256}{BUNDLE}"))
        yield paths
    except Unreachable:  # a measurement on the device at least a day later removes the files
        raise
    except BaseException:
        await _forget(session, hello, token)
        raise
    else:
        await _forget(session, hello, token)


async def _forget(session: DeviceSession, hello: HelloFacts, token: str) -> None:
    """Try to remove the files. If the device cannot do it now, a later measurement there does it."""
    command = [session.host.python, "-c", remote_program("forget"), hello.home, token]
    with contextlib.suppress(DeviceError, Unreachable, TimeoutError):
        async with asyncio.timeout(FORGET_S):
            await (await session.connection()).run(command, within_s=FORGET_S)
