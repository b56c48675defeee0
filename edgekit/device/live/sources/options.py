"""What a user may choose for a source."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgekit.runner.errors import InputError

FLIPS = ("", "horizontal", "vertical", "both")


@dataclass(frozen=True)
class SourceOptions:
    """What a user may choose for a source. Unset values are None or empty."""

    name: str = "camera"
    rate: float | None = None
    """Frames a second at most; windows a second for sound."""
    rotate: int = 0
    """Degrees clockwise by which pictures are turned: 0, 90, 180 or 270."""
    flip: str = ""
    """One of FLIPS, after the turn."""
    size: tuple[int, int] | None = None
    """Width and height asked of a camera on this device."""
    freeze_s: float | None = None
    """Seconds of the same bytes after which the state is `frozen`; 0 never. By default 10, and never for rows."""
    realtime: bool = True
    """Whether a file is played at its own speed. If not, each frame waits until it is taken, and none is dropped."""
    loop: bool = False
    """Whether a file begins again at its end."""
    hop: int | None = None
    """Samples or rows between the starts of two windows. By default as the bundle declares, else half a window."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    password_file: str = ""
    """A file whose first line is the password."""
    ca_file: str = ""
    """A file with the certificate of the CA that signed an MQTT broker's, in PEM. By default those of the system."""

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1000:
            raise InputError(f"rate: got {self.rate!r}; use a number above 0 and up to 1000")
        if self.rotate not in (0, 90, 180, 270):
            raise InputError(f"rotate: got {self.rotate!r}; use 0, 90, 180 or 270 degrees clockwise")
        if self.flip not in FLIPS:
            raise InputError(f"flip: got {self.flip!r}; use {', '.join(FLIPS[1:])}, or leave it out")
        if self.size is not None and (len(self.size) != 2 or not all(1 <= side <= 16384 for side in self.size)):
            raise InputError(f"size: got {self.size!r}; use width and height in pixels, such as 640x480")
        if self.freeze_s is not None and not 0 <= self.freeze_s <= 86400:
            raise InputError(f"freeze_s: got {self.freeze_s!r}; use seconds from 0, which is never")
