"""Requests to a device: hello first, then `edgerun`, and files for its releases."""

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
"""While a device measures, it gets a sign of life this often.

After the silence the measurement is ended, and the next one waits up to the patience.
"""
NOT_FOUND = 127
IN_ANOTHER_STATE = 4
SYNTAX = b"SyntaxError"
DESK = "desk"
"""Folder of the home with what was sent there: the runner and packages."""


async def say_hello(session: DeviceSession, runner: str = "") -> HelloFacts:
    """Return what a device is, in one round trip, with its status if it has a runner.

    The runner with this digest is preferred.

    Raises
    ------
    DeviceError
        It has no such Python, or answers something else.
    """
    token = f"edgekit-{secrets.token_hex(8)} "
    command = [session.host.python, "-c", remote_program("hello"), token, session.host.home or "", runner]
    answer = await session.retry(lambda connection: connection.run(command, within_s=HELLO_S))
    if answer.code == NOT_FOUND:
        raise DeviceError(f"has no {session.host.python}; name its Python as `python` in hosts.yaml", 5)
    if answer.code != 0 and token.encode() not in answer.stdout:
        if SYNTAX in answer.stderr:
            raise DeviceError(f"its {session.host.python} is too old to be queried; name a newer one in hosts.yaml", 5)
        answer.check()
    hello = facts.parse_hello(answer.stdout, token)
    hello.check()
    if hello.status is None and hello.runner:
        answer.check()
    return hello


class Edgerun:
    """A runner that is installed on a device that has answered to hello."""

    def __init__(self, session: DeviceSession, hello: HelloFacts, runner: str) -> None:
        self._line, self._facts, self._runner = session, hello, runner

    def words(self, *words: str) -> list[str]:
        """Return a command line of the runner, with the packages that were sent there."""
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
        """Run a command that may be run twice. Raises DeviceError if it fails."""
        command = self.words(*words)
        answer = await self._line.retry(lambda connection: connection.run(command, within_s=within_s))
        return answer.check()

    async def bench(self, *words: str, within_s: float, most: int = MOST_BYTES) -> CommandResult:
        """Run `edgerun bench …` exclusively on the device, and only while this machine listens.

        Raises
        ------
        DeviceError
            It failed, or another measurement is running there.
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
        """Return which release is current, and the state of the others."""
        return _status(await self.call("status", "--json", *self._home))

    async def receive(
        self, sha256: str, data: bytes, offset: int = 0, on_offset: Callable[[int], object] = lambda offset: None
    ) -> None:
        """Send a file to the store."""

        def command(at: int | None, acknowledge: int) -> Sequence[str]:
            position = [] if at is None else ["--offset", str(at), "--acknowledge", str(acknowledge)]
            return self.words("receive", sha256, "--size", str(len(data)), *position, *self._home)

        await upload.send_file(self._line, data, command, offset, on_offset)

    async def install(
        self, sha256: str, statement: str | None, signatures: Sequence[str], options: Sequence[str]
    ) -> ReleaseStatus:
        """Install a bundle from the store: it is then on probation, unless it was current before. Safe to repeat."""
        signed = ["--statement", statement] if statement else []
        for signature in signatures:
            signed += ["--signature", signature]
        words = ["install", sha256, *signed, *options, "--json", *self._home]
        try:
            return _status(await self.call(*words, within_s=PROOF_S))
        except DeviceError as error:  # a line that was cut leaves an install at work, which may be faster than this one
            status = await self.status() if error.exit_code == IN_ANOTHER_STATE else None
            if status is None or not status.is_current(sha256, *([statement] if statement else []), *signatures):
                raise
            return status

    async def confirm(self, number: int) -> ReleaseStatus:
        """Confirm the release with this number."""
        return _status(await self.call("confirm", "--release", str(number), "--json", *self._home))

    async def roll_back(self, number: int, why: str) -> ReleaseStatus:
        """Roll back from the release with this number to the one before."""
        words = ["rollback", "--release", str(number), f"--why={why}", "--json", *self._home]
        return _status(await self.call(*words))

    async def adopt(self, files: dict[str, str]) -> None:
        """Send a signed policy, as texts by file name. The device is in signed mode from then on."""
        data = json.dumps(files).encode()
        command = [self._line.host.python, "-c", remote_program("policy"), self._facts.home, self._runner]
        answer = await self._line.retry(lambda connection: connection.run(command, data))
        answer.check()


async def release_status(session: DeviceSession, hello: HelloFacts) -> ReleaseStatus:
    """Return the status, from whichever runner is there. Without a runner nothing was ever sent.

    Raises
    ------
    DeviceError
        There is a release, and no runner that could report it.
    """
    if hello.status is not None:
        return hello.status
    if hello.edgerun:
        return await Edgerun(session, hello, hello.edgerun).status()
    if hello.has_release:
        raise DeviceError(
            "has a release, but no runner that can be called from here; `edgekit fleet push` installs one",
            IN_ANOTHER_STATE,
        )
    return ReleaseStatus()


@functools.cache
def remote_program(name: str) -> str:
    """Return the source of a program that is sent along."""
    return resources.files("edgekit.fleet.devices.remote").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _status(answer: CommandResult) -> ReleaseStatus:
    lines = [line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError("did not report its releases; check that device", MALFORMED_ANSWER)
    return facts.parse_status(lines[-1])
