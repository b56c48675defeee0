"""What systemd is told by a service of `Type=notify`: READY=1, WATCHDOG=1, its status. Without systemd nothing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class SystemdNotifier:
    """The socket that systemd names in the environment; its variables are taken out, so that no child speaks for us."""

    def __init__(self) -> None:
        address, microseconds, process = (os.environ.pop(name, "") for name in VARIABLES)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        mine = not process or process == str(os.getpid())
        self.every_s = int(microseconds) / 2e6 if microseconds.isdecimal() and mine else None
        """Seconds between two signs of life; None: nobody waits for them."""
        self._next = 0.0

    def send(self, *lines: str) -> None:
        """Tell it; a service manager that has gone is no fault of the service."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
                stream.sendto("\n".join(lines).encode(), self._address)

    def beat(self) -> None:
        """A sign of life, where it is time for one."""
        if self.every_s is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            self.send("WATCHDOG=1")
