"""How a device fails: it cannot be reached, or it reports an error."""

from __future__ import annotations

from edgekit.core.errors import EdgekitError, ResourceError, TrustError

CODES = (2, 4, 5, 7, 8)
"""Exit codes of `edgerun` for errors that it reports; any other one means that it crashed or was killed."""
DIED = 6


class Unreachable(ResourceError):
    """Nothing answers at the device's address, or the connection broke too often."""


class ConnectionCut(Unreachable):
    """The connection broke during an operation."""


class LoginRefused(ResourceError):
    """The device answers, but does not let this user log in."""


class HostKeyError(TrustError):
    """The device's host key is not the known one, or no key of the device is known."""


class DeviceError(EdgekitError):
    """An error on the device. `exit_code` is the one with which edgekit reports the same error on this machine."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code if exit_code in CODES else DIED
