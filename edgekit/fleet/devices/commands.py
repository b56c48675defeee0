"""What is asked of a device: hello first, then `edgerun`, and files for its releases."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable, Sequence
from importlib import resources

from edgekit.fleet.devices import facts, upload
from edgekit.fleet.devices.connection import MOST_BYTES, CommandResult, Connection
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.device_json import MALFORMED_ANSWER
from edgekit.fleet.devices.facts import HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession

HELLO_S, PROOF_S = 60.0, 900.0
BEAT_S, SILENCE_S, PATIENCE_S = 10.0, 40.0, 60.0
"""The desk is heard so often while a device measures; after a silence that ends, and for so long the next one waits."""
NOT_FOUND = 127
IN_ANOTHER_STATE = 4
SYNTAX = b"SyntaxError"
DESK = "desk"
"""Folder of the home with what was brought there: the runner and packages."""


async def say_hello(line: DeviceSession, runner: str = "") -> HelloFacts:
    """What a device is, and its status where a runner is there, that of this digest before others: one round trip.

    Raises
    ------
    DeviceError
        It has no such Python, or answers something else.
    """
    token = f"edgekit-{secrets.token_hex(8)} "
    command = [line.host.python, "-c", remote_program("hello"), token, line.host.home or "", runner]
    answer = await line.retry(lambda connection: connection.run(command, within_s=HELLO_S))
    if answer.code == NOT_FOUND:
        raise DeviceError(f"has no {line.host.python}; name its Python as `python` in hosts.yaml", 5)
    if answer.code != 0 and token.encode() not in answer.out:
        if SYNTAX in answer.said:
            raise DeviceError(f"its {line.host.python} is too old to be asked; name a newer one in hosts.yaml", 5)
        answer.check()
    found = facts.parse_hello(answer.out, token)
    found.check()
    if found.status is None and found.runner:
        answer.check()
    return found


class Edgerun:
    """A runner on a device that has answered to hello; it is there already."""

    def __init__(self, line: DeviceSession, found: HelloFacts, runner: str) -> None:
        self._line, self._facts, self._runner = line, found, runner

    def words(self, *words: str) -> list[str]:
        """Of a command, with the packages that were brought there."""
        return [*self._python, self._path, *words]

    @property
    def _python(self) -> list[str]:
        packages = ":".join(self._facts.packages)
        known = [f"EDGERUN_HOME={self._facts.home}", *([f"PYTHONPATH={packages}"] if packages else [])]
        return ["env", *known, self._line.host.python]

    @property
    def _path(self) -> str:
        return f"{self._facts.home}/{DESK}/{self._runner}.pyz"

    @property
    def _home(self) -> tuple[str, str]:
        return "--home", self._facts.home

    async def call(self, *words: str, within_s: float = HELLO_S) -> CommandResult:
        """A command that may be done twice; DeviceError where it fails."""
        command = self.words(*words)
        answer = await self._line.retry(lambda connection: connection.run(command, within_s=within_s))
        return answer.check()

    async def bench(self, *words: str, within_s: float, most: int = MOST_BYTES) -> CommandResult:
        """`edgerun bench …`, alone on the device, and no longer than this desk listens.

        Raises
        ------
        DeviceError
            It failed, or another measurement is at work there.
        """
        times = (str(SILENCE_S), str(PATIENCE_S))
        command = [
            *self._python,
            "-c",
            remote_program("attended"),
            self._facts.home,
            *times,
            self._path,
            "bench",
            *words,
        ]

        async def work(connection: Connection) -> CommandResult:
            return await connection.run(command, within_s=within_s, most=most, beat_s=BEAT_S)

        return (await self._line.retry(work)).check()

    async def status(self) -> ReleaseStatus:
        """What is current, and what became of the others."""
        return _status(await self.call("status", "--json", *self._home))

    async def receive(
        self, sha256: str, data: bytes, offset: int = 0, on_offset: Callable[[int], object] = lambda offset: None
    ) -> None:
        """A file for the store."""

        def command(at: int | None, acknowledge: int) -> Sequence[str]:
            asked = [] if at is None else ["--offset", str(at), "--acknowledge", str(acknowledge)]
            return self.words("receive", sha256, "--size", str(len(data)), *asked, *self._home)

        await upload.send_file(self._line, data, command, offset, on_offset)

    async def install(
        self, sha256: str, statement: str | None, signatures: Sequence[str], options: Sequence[str]
    ) -> ReleaseStatus:
        """A bundle of the store is on trial then, or was current before. Safe to ask twice."""
        signed = ["--statement", statement] if statement else []
        for signature in signatures:
            signed += ["--signature", signature]
        words = ["install", sha256, *signed, *options, "--json", *self._home]
        try:
            return _status(await self.call(*words, within_s=PROOF_S))
        except DeviceError as error:  # a line that was cut leaves an install at work, which may be faster than this one
            found = await self.status() if error.exit_code == IN_ANOTHER_STATE else None
            if found is None or not found.is_current(sha256, *([statement] if statement else []), *signatures):
                raise
            return found

    async def confirm(self, number: int) -> ReleaseStatus:
        """That release is the one to keep."""
        return _status(await self.call("confirm", "--release", str(number), "--json", *self._home))

    async def roll_back(self, number: int, why: str) -> ReleaseStatus:
        """From that release to the one before."""
        words = ["rollback", "--release", str(number), f"--why={why}", "--json", *self._home]
        return _status(await self.call(*words))

    async def adopt(self, files: dict[str, str]) -> None:
        """A signed policy, by the names of its files: the device is in signed mode from then on."""
        data = json.dumps(files).encode()
        command = [self._line.host.python, "-c", remote_program("policy"), self._facts.home, self._runner]
        answer = await self._line.retry(lambda connection: connection.run(command, data))
        answer.check()


async def release_status(line: DeviceSession, found: HelloFacts) -> ReleaseStatus:
    """By the runner that is there, whichever; without one nothing was ever brought.

    Raises
    ------
    DeviceError
        There is a release, and no runner that could tell of it.
    """
    if found.status is not None:
        return found.status
    if found.edgerun:
        return await Edgerun(line, found, found.edgerun).status()
    if found.kept:
        raise DeviceError(
            "has a release, and no runner that answers from here; `edgekit fleet push` brings one",
            IN_ANOTHER_STATE,
        )
    return ReleaseStatus()


@functools.cache
def remote_program(name: str) -> str:
    """The source of one that is sent along."""
    return resources.files("edgekit.fleet.devices.remote").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _status(answer: CommandResult) -> ReleaseStatus:
    lines = [line for line in answer.out.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError("does not say what its releases are; look at that device", MALFORMED_ANSWER)
    return facts.parse_status(lines[-1])
