"""A microphone, recorded by arecord: `alsa`, `alsa:plughw:1,0`, `alsa:plughw:1,0#rate=48000&channels=2`.

The devices are those of `arecord -L`. By default, ALSA is asked for the bundle's rate and one channel, which `default`
and `plughw` convert to. With `rate` or `channels`, the sound is converted here, if the bundle declares that.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from edgekit.device import processes
from edgekit.device.live.sources import address, base, sound
from edgekit.device.live.sources.log import LastLines
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("alsa",)
DEFAULT = "default"
FORMAT = "S16_LE"
SAID_S = 0.2
"""After the first sound, what arecord has written before it is read within this time."""
REASONS = (
    ("no such file", "there is no such device; those here: arecord -L"),
    ("unknown pcm", "there is no such device; those here: arecord -L"),
    ("busy", "in use by another program; end that: fuser -v /dev/snd/*"),
    ("permission denied", "no permission; run: sudo usermod -aG audio $USER, and log in again"),
    ("not accurate", "the microphone has another rate; use plughw: in place of hw:, or name its rate: #rate=48000"),
    ("not available", "the microphone lacks this format; use plughw: in place of hw:"),
)


class AlsaSource(sound.SoundSource):
    """Windows of the sound of a microphone."""

    format = FORMAT

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        self.rate_hz, self.channels = address.number("rate"), address.number("channels")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(address, options, raw)

    def _bytes(self) -> Iterator[bytes]:
        shown = self.address.shown
        program = shutil.which("arecord")
        if program is None:
            raise InputError(f"{shown}: arecord is not installed; run: sudo apt install alsa-utils")
        command = [program, "-D", self.address.rest or DEFAULT, "-t", "raw", "-f", FORMAT]
        command += ["-r", str(self.rate_hz or self.raw.sample_rate_hz), "-c", str(self.channels or 1)]
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        with self._lock:
            process = processes.start_program(command, stdin=nothing, stdout=pipe, stderr=pipe, bufsize=0)
            self._process = process
        assert process.stdout is not None
        log = LastLines(process.stderr)
        said_s = SAID_S
        for data in sound.read(process.stdout.fileno(), self._closed, base.STALL_S):
            if any("not accurate" in line for line in log.lines(said_s)):
                break
            said_s = 0.0
            self._ready.set()
            yield data
        if self._closed.is_set():
            return
        self._disconnect()
        lines = log.lines(1.0)
        for words, reason in REASONS:
            if any(words in line.lower() for line in lines):
                raise InputError(f"{shown}: {reason}")
        raise InputError(f"{shown}: the microphone gives nothing{': ' + lines[-1] if lines else ''}; try: arecord -L")

    def _disconnect(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            processes.end_process(process)
            with suppress(AttributeError):
                process.stdout.close()  # type: ignore[union-attr]


def open(text: str, options: SourceOptions, raw: RawSpec) -> AlsaSource:
    """Return the source for a device. Raises InputError if the bundle takes no such sound."""
    return AlsaSource(address.parse(text, options, ("rate", "channels")), options, raw)
