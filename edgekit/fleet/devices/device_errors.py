"""How a device fails: it cannot be reached, or it can and something is wrong there."""

from __future__ import annotations

from edgekit.core.errors import EdgekitError, ResourceError, TrustError

CODES = (2, 4, 5, 7, 8)
"""Exit codes of `edgerun` that say what is wrong; any other one means that it died, and did not choose to end."""
DIED = 6


class Unreachable(ResourceError):
    """Nobody answers at its address, or the line was cut more often than it is worth."""


class ConnectionCut(Unreachable):
    """The line was cut in the middle of something."""


class LoginRefused(ResourceError):
    """It answers, and does not let this user in."""


class HostKeyError(TrustError):
    """Its host key is not the one that is known, or none is known."""


class DeviceError(EdgekitError):
    """Something is wrong on the device; `exit_code` is that of the same fault here."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code if exit_code in CODES else DIED
