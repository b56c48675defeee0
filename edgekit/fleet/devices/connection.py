"""An SSH connection to a device, made with asyncssh.

It uses the user's SSH config, keys, agent and jump hosts, and checks host keys strictly. asyncssh is imported only
where it is used, because the extra `fleet` may not be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices import host_keys, shell_text
from edgekit.fleet.devices.device_errors import ConnectionCut, DeviceError, HostKeyError, LoginRefused, Unreachable
from edgekit.fleet.devices.inventory import Host

if TYPE_CHECKING:
    import asyncssh

CONNECT_S = 20.0
"""Time limit for connecting and logging in."""
KEEPALIVE_S, KEEPALIVE_COUNT = 10.0, 3
"""A dead connection is noticed within the product of these two, in seconds."""
MOST_BYTES = 1 << 20
"""Largest output of a command."""
PIECE_BYTES = 1 << 15


@dataclass(frozen=True)
class CommandResult:
    """How a command on a device ended, and its output."""

    code: int
    stdout: bytes
    stderr: bytes
    signal: str = ""

    def check(self) -> CommandResult:
        """Return the result itself. Raises DeviceError with the last line of standard error if the command failed."""
        if self.code != 0:
            how = f"was killed on the device ({self.signal})" if self.signal else f"ended with exit code {self.code}"
            raise DeviceError(shell_text.last_line(self.stderr) or how, self.code)
        return self


class Network:
    """The state that all connections share: the known host keys, which are read once."""

    def __init__(self, connect_s: float = CONNECT_S) -> None:
        require_asyncssh()
        logging.getLogger("asyncssh").setLevel(logging.CRITICAL)  # it would log data from unknown devices
        self._connect_s = connect_s
        self._known = host_keys.KnownHosts()

    @contextlib.asynccontextmanager
    async def connection(self, host: Host) -> AsyncIterator[Connection]:
        """Open a connection, and close it afterwards. The exceptions are those of the module `device_errors`."""
        connection = await self.open(host)
        try:
            yield connection
        finally:
            connection.close()

    async def open(self, host: Host) -> Connection:
        """Open a connection that the caller closes."""
        import asyncssh

        known_hosts, offer = self._known.of(host), host_keys.OfferedKey()
        options = {"port": host.port, "username": host.user}
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await asyncssh.connect(
                    host.host,
                    known_hosts=known_hosts,
                    client_factory=lambda: offer.client(),
                    keepalive_interval=KEEPALIVE_S,
                    keepalive_count_max=KEEPALIVE_COUNT,
                    **{key: value for key, value in options.items() if value is not None},
                )
        except TimeoutError:
            raise Unreachable(f"{host.address}: the login was not completed within {self._connect_s:g} s") from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise HostKeyError(
                host_keys.explain_host_key(host, offer, offer.is_known(known_hosts, host), error.reason)
            ) from None
        except asyncssh.KeyExchangeFailed as error:
            await self._check_host_key_type(host, known_hosts)
            raise LoginRefused(f"{host.address}: {shell_text.printable(error.reason)}; update its sshd") from None
        except asyncssh.PermissionDenied:
            raise LoginRefused(
                f"{host.address}: does not accept this user; copy your key there with `ssh-copy-id "
                f"{host.ssh_words}`, name another user, or start an agent that has the key"
            ) from None
        except (asyncssh.ConfigParseError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise ConfigError(f"{host_keys.CONFIG} or a key of yours: {shell_text.printable(error)}") from None
        except Exception as error:  # unexpected bytes can cause any error in asyncssh
            if offer.connected:
                await self._check_host_key_type(host, known_hosts)
            raise Unreachable(f"{host.address}: cannot be reached ({_reason(error)})") from None
        return Connection(host, connection)

    async def _check_host_key_type(self, host: Host, known: Any) -> None:
        """Raise HostKeyError if the connection ended because the device has no host key of the recorded type."""
        import asyncssh

        offer, key = host_keys.OfferedKey(), None
        port = host.port or ()
        with contextlib.suppress(Exception):  # unexpected bytes can cause any error in asyncssh, as above
            async with asyncio.timeout(self._connect_s):
                key = await asyncssh.get_server_host_key(host.host, port)
        if key is not None and offer.is_known(known, host):
            offer.offer(key)
            if not offer.is_known(known, host, key):
                raise HostKeyError(host_keys.explain_host_key(host, offer, True, ""))


class Connection:
    """An open connection to a device."""

    def __init__(self, host: Host, connection: asyncssh.SSHClientConnection) -> None:
        self.host, self._connection = host, connection

    def close(self) -> None:
        """Close the connection at once, without waiting."""
        self._connection.abort()

    async def start(self, command: Sequence[str]) -> Process:
        """Start a command, connected to its standard input, output and error."""
        import asyncssh

        try:
            process = await self._connection.create_process(
                shell_text.shell_command(command), encoding=None, request_pty=False
            )
        except (asyncssh.Error, OSError) as error:
            raise ConnectionCut(f"{self.host.address}: the connection was lost ({_reason(error)})") from None
        return Process(self.host, process)

    async def run(
        self,
        command: Sequence[str],
        data: bytes = b"",
        within_s: float = 60.0,
        most: int = MOST_BYTES,
        beat_s: float | None = None,
    ) -> CommandResult:
        """Run a command to its end.

        With `beat_s`, the command's standard input stays open and receives a byte at this interval, so that the device
        knows that this machine is still connected. Raises ConnectionCut if the connection breaks, after which callers
        may try again, and Unreachable if the command takes too long.
        """
        process = await self.start(command)
        beats = asyncio.create_task(process.beat(beat_s)) if beat_s else None
        try:
            async with asyncio.timeout(within_s):
                process.write(data)
                if beats is None:
                    process.write_eof()
                stdout, stderr = await asyncio.gather(process.read_all(most), process.read_stderr())
                return CommandResult(await process.code(), stdout, stderr, process.signal)
        except TimeoutError:
            raise Unreachable(f"{self.host.address}: no answer within {within_s:g} s") from None
        finally:
            if beats:
                beats.cancel()
            process.close()


class Process:
    """A command that runs on a device."""

    def __init__(self, host: Host, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.host, self._process = host, process

    def write(self, data: bytes) -> None:
        """Write to the standard input of the command. Ignored if the command has ended."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)

    async def drain(self) -> None:
        """Wait until more can be written. Returns at once if the command has ended."""
        import asyncssh

        with contextlib.suppress(OSError, asyncssh.Error):
            await self._process.stdin.drain()

    async def beat(self, every_s: float) -> None:
        """Write a byte at this interval, forever."""
        while True:
            self.write(b"\n")
            await asyncio.sleep(every_s)

    def write_eof(self) -> None:
        """Close the standard input of the command."""
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    async def read(self) -> bytes:
        """Return the next part of the output. It is empty at the end, or if the connection broke."""
        import asyncssh

        try:
            data: bytes = await self._process.stdout.read(PIECE_BYTES)
        except (asyncssh.Error, OSError):
            return b""
        return data

    async def read_all(self, most: int) -> bytes:
        """Return the whole output. Raises DeviceError if it is longer than `most` bytes."""
        output = bytearray()
        while data := await self.read():
            output += data
            if len(output) > most:
                raise DeviceError(f"sent more than {most:,} bytes, which is more than any edgekit command sends", 8)
        return bytes(output)

    async def read_stderr(self) -> bytes:
        """Return the end of the standard error."""
        import asyncssh

        stderr = b""
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(PIECE_BYTES):
                stderr = (stderr + data)[-PIECE_BYTES:]
        return stderr

    async def code(self) -> int:
        """Return the exit code of the command, which is 128 or more if a signal ended it.

        asyncssh does not report a lost connection here, so this raises ConnectionCut if there is neither an exit code
        nor a signal.
        """
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            await self._process.wait_closed()
        code, by_signal = self._process.exit_status, self._process.exit_signal
        if code is None and by_signal is None:
            raise ConnectionCut(f"{self.host.address}: the connection was lost")
        return 128 if code is None or code < 0 else code

    @property
    def signal(self) -> str:
        """The signal that ended the command, such as SIGKILL, or an empty string."""
        exit_signal = self._process.exit_signal
        return f"SIG{shell_text.printable(exit_signal[0], 20)}" if exit_signal else ""

    def close(self) -> None:
        """Close the streams at once."""
        self._process.close()


def require_asyncssh() -> None:
    """Raise ConfigError if the extra is not installed."""
    try:
        import asyncssh  # noqa: F401  (imported only to check that it is installed)
    except ImportError as error:
        raise ConfigError(
            f"edgekit fleet: {error.name or 'asyncssh'} is not installed: pip install asyncssh packaging"
        ) from None


def _reason(error: Exception) -> str:
    text = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    return shell_text.printable(text, 120)
