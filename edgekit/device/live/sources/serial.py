"""Lines of numbers from a serial port, such as an Arduino: `serial:/dev/ttyACM0#baud=115200`.

A line that is no row, such as a greeting or one whose beginning was missed, is left out and counted in the status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.device.live.sources import address, rows, sound
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("serial",)
BAUD = 115200
LONGEST_LINE_BYTES = 1 << 16


class SerialSource(rows.RowSource):
    """Samples from the lines of a serial port."""

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        super().__init__(address, options, raw)
        self._baud = address.number("baud") or BAUD

    def _connect(self) -> Iterator[np.ndarray]:
        parse, samples, rest = rows.RowParser(self.raw), rows.RowSamples(self.raw, self.options.hop), b""
        descriptor = self._open()
        self._ready.set()
        try:
            for data in sound.read(descriptor, self._closed):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-LONGEST_LINE_BYTES:]
                for line in lines:
                    try:
                        row = parse(line.decode(errors="replace"))
                    except InputError as error:
                        self._ignore(error)
                        continue
                    if row is not None:
                        yield from samples.push(row)
        except OSError as error:
            raise InputError(f"{self.address.shown}: {error.strerror}; check its plug") from None
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        """Open the port and set its speed: 8 bits without parity."""
        path, shown = self.address.rest, self.address.shown
        if sys.platform == "win32":
            raise InputError(f"{shown}: serial ports are read on Linux and macOS only; pipe the lines in: csv:-")
        import termios

        speed = getattr(termios, f"B{self._baud}", None)
        if speed is None:
            raise InputError(f"{shown}: baud: got {self._baud}; use a usual speed, such as 9600 or 115200")
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            control = termios.CS8 | termios.CREAD | termios.CLOCAL
            characters = termios.tcgetattr(descriptor)[6]
            termios.tcsetattr(descriptor, termios.TCSANOW, [termios.IGNBRK, 0, control, 0, speed, speed, characters])
            termios.tcflush(descriptor, termios.TCIFLUSH)
        except (OSError, termios.error) as error:
            if descriptor >= 0:
                os.close(descriptor)
            code, reason = error.args[:2]
            fix = "run: sudo usermod -aG dialout $USER, and log in again" if code == 13 else "those here: ls /dev/tty*"
            raise InputError(f"{shown}: {reason}; {fix}") from None
        return descriptor


def open(text: str, options: SourceOptions, raw: RawSpec) -> SerialSource:
    """Return the source for a port. Raises InputError if it names none, or the bundle takes no rows."""
    parsed = address.parse(text, options, ("baud",))
    if not parsed.rest:
        raise InputError(f"{parsed.shown}: no port; use serial:/dev/ttyACM0, as ls /dev/tty* lists them")
    return SerialSource(parsed, options, raw)
