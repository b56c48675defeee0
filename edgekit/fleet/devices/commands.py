"""Requests to a device: hello, which queries what it is, then commands of `edgerun`, and files for its releases."""

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
"""While a device measures, it is sent a byte every `BEAT_S` seconds.

If nothing arrives for `SILENCE_S`, it ends the measurement. A measurement waits up to `PATIENCE_S` for another to end.
"""
NOT_FOUND = 127
IN_ANOTHER_STATE = 4
SYNTAX = b"SyntaxError"
FLEET_FOLDER = "fleet"
"""The folder in a device's home for what a workstation sends: the runner and packages."""


async def say_hello(session: DeviceSession, runner: str = "") -> HelloFacts:
    """Query what a device is, and the status of its releases if it has a runner, in one round trip.

    `runner` is the digest of the runner that should report the status, if the device has it.

    Raises
    ------
    DeviceError
        The device lacks the Python that the inventory names, or gives an unexpected answer.
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
    """The runner on a device. `hello` is the device's answer to `say_hello`, and `runner` the runner's digest."""

    def __init__(self, session: DeviceSession, hello: HelloFacts, runner: str) -> None:
        self._session, self._facts, self._runner = session, hello, runner

    def words(self, *words: str) -> list[str]:
        """Return a command that calls the runner with these arguments and with the packages that were sent there."""
        return [*self._python, self._path, *words]

    @property
    def _python(self) -> list[str]:
        packages = ":".join(self._facts.packages)
        known = [f"EDGERUN_HOME={self._facts.home}", *([f"PYTHONPATH={packages}"] if packages else [])]
        return ["env", *known, self._session.host.python]

    @property
    def _path(self) -> str:
        return f"{self._facts.home}/{FLEET_FOLDER}/{self._runner}.pyz"

    @property
    def _home(self) -> tuple[str, str]:
        return "--home", self._facts.home

    async def call(self, *words: str, within_s: float = HELLO_S) -> CommandResult:
        """Run a command, and run it again if the connection breaks. Raises DeviceError if the command fails."""
        command = self.words(*words)
        answer = await self._session.retry(lambda connection: connection.run(command, within_s=within_s))
        return answer.check()

    async def bench(self, *words: str, within_s: float, most: int = MOST_BYTES) -> CommandResult:
        """Run `edgerun bench …`. It ends if this machine disconnects, and no other measurement runs at the same time.

        Raises
        ------
        DeviceError
            The command failed, or another measurement did not end in time.
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

        return (await self._session.retry(work)).check()

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

        await upload.send_file(self._session, data, command, offset, on_offset)

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
        except DeviceError as error:  # an install whose connection broke may still be running, and end before this one
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
        command = [self._session.host.python, "-c", remote_program("policy"), self._facts.home, self._runner]
        answer = await self._session.retry(lambda connection: connection.run(command, data))
        answer.check()


async def release_status(session: DeviceSession, hello: HelloFacts) -> ReleaseStatus:
    """Return the status of a device's releases, reported by whichever runner is there; empty if nothing was ever sent.

    Raises
    ------
    DeviceError
        The device has a release, but no runner that could report it.
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
    """Return the source of a program of the package `remote`, which is sent along with each call."""
    return resources.files("edgekit.fleet.devices.remote").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _status(answer: CommandResult) -> ReleaseStatus:
    lines = [line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]
    if not lines:
        raise DeviceError("did not report its releases; check that device", MALFORMED_ANSWER)
    return facts.parse_status(lines[-1])
