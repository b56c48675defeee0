"""Strict checks of host keys: the known hosts that apply to a device, and explanations of a key that is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices import shell_text
from edgekit.fleet.devices.inventory import Host

if TYPE_CHECKING:
    import asyncssh

FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
CONFIG = "~/.ssh/config"


class KnownHosts:
    """Files of known hosts, each read once for all connections."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, ...], Any] = {}

    def of(self, host: Host) -> Any:
        """Return the known hosts for a device.

        The result is never None, even with `UserKnownHostsFile none`, because asyncssh accepts any key if the known
        hosts are None.
        """
        import asyncssh

        files: Any = ()
        if os.path.exists(os.path.expanduser(CONFIG)):
            try:
                files = asyncssh.SSHClientConnectionOptions(
                    host=host.host, username=host.user or (), config=(), client_keys=None, agent_path=None
                ).known_hosts
            except (asyncssh.ConfigParseError, OSError, ValueError) as error:
                raise ConfigError(f"{CONFIG}: {shell_text.printable(error)}") from None
        names = FILES if files == () or files == [] else files or ()
        paths = [os.path.expanduser(str(path)) for path in names]
        existing = tuple(path for path in paths if Path(path).is_file())
        if existing not in self._read:
            try:
                self._read[existing] = asyncssh.read_known_hosts(existing)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{', '.join(existing)}: {shell_text.printable(error)}; remove the line") from None
        return self._read[existing]


class OfferedKey:
    """The unknown key that a device offered."""

    def __init__(self) -> None:
        self.connected, self.offered = False, ""
        self._place: tuple[str, str, int] | None = None

    def client(self) -> Any:
        """Return a client for one connection, which records the key."""
        import asyncssh

        record = self

        class Client(asyncssh.SSHClient):
            def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
                record.connected = True

            def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
                record.offer(key, (host, addr, port))
                return False

        return Client()

    def offer(self, key: asyncssh.SSHKey, place: tuple[str, str, int] | None = None) -> None:
        """Record the key of the device."""
        self.offered, self._place = f"{key.get_algorithm()} {key.get_fingerprint()}", place

    def is_known(self, known: Any, host: Host, key: asyncssh.SSHKey | None = None) -> bool:
        """Return whether `key` is known for the device; without `key`, whether any key of the device is known."""
        import asyncssh

        name, address, port = self._place or (host.host, host.host, host.port or 22)
        matches = asyncssh.match_known_hosts(known, name, address, port if port != 22 else None)
        return any(matches[:2]) if key is None else key in matches[0]


def explain_host_key(host: Host, offer: OfferedKey, known: bool, reason: str) -> str:
    """Return what is wrong with the host key, and what to do. `known` says that another key of the device is known."""
    place = f"[{host.host}]:{host.port}" if host.port not in (None, 22) else host.host
    offered = f" {offer.offered}" if offer.offered else ""
    if known:
        return (
            f"{host.address}: its host key{offered} is not the one in known_hosts: either it was "
            f"generated anew, or somebody intercepts the connection; check that device, then run "
            f"`ssh-keygen -R '{place}'`"
        )
    if offered:
        return (
            f"{host.address}: its host key{offered} is not known; connect once with `ssh "
            f"{host.ssh_words}`, and compare the key"
        )
    return f"{host.address}: its host key was not accepted ({shell_text.printable(reason)}); check that device"
