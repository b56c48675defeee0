"""Bundles that lie on a device only while they are timed or examined there: beside its releases, and removed behind."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgekit.fleet.devices.commands import DESK, remote_program
from edgekit.fleet.devices.device_errors import DeviceError, Unreachable
from edgekit.fleet.devices.facts import DeviceRelease, HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import FileContent, put_file

UNSIGNED = 8
FORGET_S = 20.0
BUNDLE, STATEMENT, SIGNATURE = ".edge.zip", ".intoto.json", ".sig"


@dataclass(frozen=True)
class TemporaryBundle:
    """A bundle, with the statement and the signatures beside it where it is signed."""

    bundle: FileContent
    statement: FileContent | None = None
    signatures: tuple[FileContent, ...] = ()

    @property
    def files(self) -> dict[str, FileContent]:
        """By the names under which a device looks for them."""
        name = f"{self.bundle.sha256}{BUNDLE}"
        found = {name: self.bundle}
        if self.statement:
            found[f"{name}{STATEMENT}"] = self.statement
        for place, each in enumerate(self.signatures):
            found[f"{name}{STATEMENT}{SIGNATURE}{f'.{place + 1}' if place else ''}"] = each
        return found

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(len(file.data) for file in self.files.values())

    def release(self, status: ReleaseStatus) -> DeviceRelease | None:
        """A release that is all of it, and loads."""
        found = status.of(self.bundle.sha256)
        if found is None or found.state == "failed" or (status.refused and found.number == status.current):
            return None
        signed = {file.sha256 for file in self.files.values()} if self.signatures else set()
        return found if found.files >= signed else None

    def check(self, found: HelloFacts) -> None:
        """DeviceError where the device takes signed bundles alone and this one is not: nothing has to be sent then."""
        if found.status is not None and found.status.signed and not self.signatures:
            raise DeviceError("is in signed mode, and nobody has signed this bundle; use `edgekit sign`", UNSIGNED)


@contextlib.asynccontextmanager
async def temporary_bundles(
    line: DeviceSession, found: HelloFacts, bundles: Sequence[TemporaryBundle]
) -> AsyncIterator[list[str]]:
    """The paths of the bundles there, in their order; what was sent for it is removed at the end, also at Ctrl-C.

    A release of the device's is used where it lies.

    Raises
    ------
    DeviceError
        The device takes signed bundles alone, or has no room.
    """
    for each in bundles:
        each.check(found)
    home, token = PurePosixPath(found.home), secrets.token_hex(8)
    try:
        paths = []
        for each in bundles:
            release = each.release(found.status or ReleaseStatus())
            if release is not None:
                paths.append(str(home / "releases" / str(release.number) / f"bundle{BUNDLE}"))
                continue
            for name, file in each.files.items():
                await put_file(line, found, file, f"temporary/{token}/{name}")
            paths.append(str(home / DESK / "temporary" / token / f"{each.bundle.sha256}{BUNDLE}"))
        yield paths
    except Unreachable:  # it is removed by a later measurement there
        raise
    except BaseException:
        await _forget(line, found, token)
        raise
    else:
        await _forget(line, found, token)


async def _forget(line: DeviceSession, found: HelloFacts, token: str) -> None:
    """Whatever comes of it: a device that cannot do so now has another day."""
    command = [line.host.python, "-c", remote_program("forget"), found.home, token]
    with contextlib.suppress(DeviceError, Unreachable, TimeoutError):
        async with asyncio.timeout(FORGET_S):
            await (await line.connection()).run(command, within_s=FORGET_S)
