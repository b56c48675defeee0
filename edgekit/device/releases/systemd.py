"""Notifications to systemd for a service of `Type=notify`: READY=1, WATCHDOG=1 and the status."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class SystemdNotifier:
    """The socket that systemd names in environment variables, which are then removed so that no child uses them."""

    def __init__(self) -> None:
        address, microseconds, process = (os.environ.pop(name, "") for name in VARIABLES)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_for_us = not process or process == str(os.getpid())
        self.every_s = int(microseconds) / 2e6 if microseconds.isdecimal() and is_for_us else None
        """Seconds between two watchdog notifications, or None if systemd expects none."""
        self._next = 0.0

    def send(self, *lines: str) -> None:
        """Send lines to systemd. Errors are ignored, because the service must go on without systemd."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
                stream.sendto("\n".join(lines).encode(), self._address)

    def beat(self) -> None:
        """Notify the watchdog if a notification is due."""
        if self.every_s is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            self.send("WATCHDOG=1")
