"""How a device fails: it cannot be reached, or it can and something is wrong there."""

from __future__ import annotations

from edgekit.core.errors import EdgekitError, ResourceError, TrustError


class Unreachable(ResourceError):
    """Nobody answers at its address, or the line was cut more often than it is worth."""


class Cut(Unreachable):
    """The line was cut in the middle of something."""


class Refused(ResourceError):
    """It answers, and does not let this user in."""


class HostKeyError(TrustError):
    """Its host key is not the one that is known, or none is known."""


class DeviceError(EdgekitError):
    """Something is wrong on the device; `exit_code` is that of the same fault elsewhere."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code
