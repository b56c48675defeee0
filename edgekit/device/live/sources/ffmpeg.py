"""Pictures that ffmpeg decodes: cameras, streams and films.

ffmpeg runs as a child process and writes raw RGB pictures to its standard output. A filter writes the size of each
picture to its standard error just before, so that a stream may change its size.

An address with a password reaches ffmpeg on its standard input, as a list of its `concat` format, because any user of
the device can read a command line.
"""

from __future__ import annotations

import functools
import queue
import re
import shutil
import socket
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device import processes
from edgekit.device.live.sources import base, pipes
from edgekit.device.live.sources.log import LastLines
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions

OLDEST = (4, 4)
"""ffmpeg 4.4 is the first that can hand on a changed size (`-autoscale 0`)."""
PICTURE_SIZE = re.compile(rb"\[Parsed_showinfo.* n: *\d+ .* s:(\d+)x(\d+) ")
PROTOCOLS = "pipe,rtsp,rtp,udp,tcp,tls,crypto,http,https"
QUICK_START = {"analyzeduration": "1000000", "fpsprobesize": "0"}
"""Options with which ffmpeg does not look at a stream for seconds to estimate its rate."""
TO_RGB = "scale=flags=bilinear+full_chroma_int+accurate_rnd"
"""Converts colours nearly as Pillow does for a JPEG file.

In a photograph, the mean difference is 0.3 of 255 for 4:2:2 and 1.6 for 4:2:0; with ffmpeg's default 1.5 and 2.6.
"""
TURNS = {0: (), 90: ("transpose=clock",), 180: ("hflip", "vflip"), 270: ("transpose=cclock",)}
FLIPS = {"": (), "horizontal": ("hflip",), "vertical": ("vflip",), "both": ("hflip", "vflip")}
UNREACHABLE = r"connection refused|timed out|no route to host|unreachable|failed to resolve|name or service not known"
REASONS = (
    (UNREACHABLE, "{detail}; check that it is switched on, its address and the network"),
    (r"401 unauthori[sz]ed|authorization failed", "wrong user name or password; use user:${{NAME}}@ or password_file"),
    (r"403 forbidden", "this user may not see it; ask for the right in the camera's settings"),
    (r"404 not found|454 session not found", "there is no such stream; check the path after the host"),
    (r"device or resource busy", "in use by another program; end that, or use another camera"),
    (r"permission denied", "no permission; add the user to the group that owns it: sudo usermod -aG video $USER"),
    (r"no such file or directory|no such device", "not there; check the path and the plug"),
    (r"decoder .*not found|no decoder|unknown decoder|unsupported codec|codec .* not found|decoding requested, but no",
     "this ffmpeg lacks a decoder: {detail}; run: sudo apt install ffmpeg"),
    (r"unknown input format|protocol not found", "this ffmpeg lacks a part: {detail}; run: sudo apt install ffmpeg"),
    (r"no cameras available", "no camera; check the cable, and look for it: rpicam-hello --list-cameras"),
    (r"failed to acquire camera|pipeline handler in use", "in use by another program; end that"),
    (r"inappropriate ioctl|not a video capture device", "not a camera; look for another: v4l2-ctl --list-devices"),
    (r"invalid data found|moov atom not found|matches no streams|does not contain any stream",
     "no film or stream that ffmpeg can read: {detail}"),
)  # fmt: skip
"""What ffmpeg writes, and what to say instead."""
ERRORS = re.compile(r"\[(?:error|fatal|panic)\]")
TAGS = re.compile(r"^(?:\[[^\]]*\] ?)+")


@dataclass(frozen=True)
class Input:
    """What ffmpeg reads."""

    arguments: tuple[str, ...]
    """Options of the input, which end with `-i` and an address."""
    script: str = ""
    """Text for its standard input."""
    feeder: tuple[str, ...] = ()
    """A program whose output ffmpeg reads on its standard input."""
    filters: tuple[str, ...] = ()
    """Filters for each picture."""


class FfmpegSource(base.Source):
    """A source whose frames ffmpeg decodes. A subclass says in `_input` what ffmpeg reads."""

    limits_rate = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()
        self._children: list[subprocess.Popen[bytes]] = []
        self._is_unreachable = False

    @abstractmethod
    def _input(self) -> Input:
        """Return what ffmpeg reads. Raises InputError if that can be seen to fail."""

    def _connect(self) -> Iterator[np.ndarray]:
        shown = self.address.shown
        if self._is_unreachable:
            self._knock()
        source = self._input()
        program, version = find(shown)
        process, log = self._start(command(program, version, source, self.options), source)
        assert process.stdout is not None
        pipes.widen(process.stdout.fileno())
        stall_s: float | None = None
        if self.reconnects:
            stall_s = max(base.STALL_S, 3 / self.options.rate if self.options.rate else 0)
        wait_s = base.FIRST_FRAME_S if stall_s else None
        has_frames = False
        while True:
            try:
                size = log.sizes.get(timeout=wait_s)
                if size is None:
                    break
                width, height = size
                picture = np.empty((height, width, 3), np.uint8)
                if not _fill(process.stdout, picture.reshape(-1).data, stall_s):
                    break
            except (queue.Empty, TimeoutError):
                raise InputError(f"{shown}: no frame for {wait_s:.0f} s; check the camera and the network") from None
            yield picture
            has_frames, wait_s = True, stall_s
        self._explain(process, log, has_frames)

    def _oriented(self, data: np.ndarray) -> np.ndarray:
        """Return the frame as it is, because ffmpeg has turned it, which costs this process nothing."""
        return data

    def _start(self, arguments: list[str], source: Input) -> tuple[subprocess.Popen[bytes], Log]:
        """Start ffmpeg, and what feeds it."""
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        stdin: Any = pipe if source.script else nothing
        feeder_log: LastLines | None = None
        with self._lock:
            if source.feeder:
                feeder = processes.start_program(source.feeder, stdin=nothing, stdout=pipe, stderr=pipe, bufsize=0)
                self._children.append(feeder)
                stdin, feeder_log = feeder.stdout, LastLines(feeder.stderr)
            process = processes.start_program(arguments, stdin=stdin, stdout=pipe, stderr=pipe, bufsize=0)
            self._children.append(process)
        if source.feeder:
            stdin.close()
        log = Log(process.stderr, feeder_log)
        if self._closed.is_set():
            self._disconnect()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.write(source.script.encode())
                process.stdin.close()
        return process, log

    def _disconnect(self) -> None:
        with self._lock:
            children, self._children = self._children, []
            for child in children:
                processes.end_process(child)
        if threading.current_thread() is self._thread:
            for child in children:
                if child.stdout is not None:
                    child.stdout.close()

    def _explain(self, process: subprocess.Popen[bytes], log: Log, has_frames: bool) -> None:
        """Raise InputError unless ffmpeg came to the end of what it read."""
        if self._closed.is_set():
            return
        processes.has_ended(process, 2.0)
        lines = [self.address.redact(line) for line in log.lines(1.0)]
        self._disconnect()
        code = process.returncode
        if code == 0 and has_frames:
            return
        reason, self._is_unreachable = reason_of(lines, code)
        raise InputError(f"{self.address.shown}: {reason}")

    def _knock(self) -> None:
        """Raise InputError if the host still refuses a connection, which costs less than to start ffmpeg."""
        host, port = self.address.host
        port = port or {"rtsp": 554, "rtsps": 322, "https": 443}.get(self.address.scheme, 80)
        try:
            socket.create_connection((host, port), timeout=base.LONGEST_RETRY_S).close()
        except OSError as error:
            raise InputError(f"{self.address.shown}: {error.strerror or error}; it is tried again") from None
        self._is_unreachable = False


class Log(LastLines):
    """What ffmpeg writes to its standard error: sizes of pictures, and the last of its other lines.

    `feeder` is the log of a program before it, whose lines come first, because they say why nothing came.
    """

    def __init__(self, stream: Any, feeder: LastLines | None = None) -> None:
        self.sizes: queue.Queue[tuple[int, int] | None] = queue.Queue()
        """Width and height of each picture, None at the end."""
        self._feeder = feeder
        super().__init__(stream)

    def lines(self, timeout_s: float) -> list[str]:
        """Return the last lines, the feeder's first, after waiting so long for the end."""
        return [*(self._feeder.lines(timeout_s) if self._feeder else ()), *super().lines(timeout_s)]

    def add(self, line: bytes) -> None:
        """Keep a line, or the size in it."""
        size = PICTURE_SIZE.match(line)
        if size:
            self.sizes.put((int(size[1]), int(size[2])))
        elif b"[Parsed_showinfo" not in line:
            super().add(line)

    def end(self) -> None:
        """Mark the end of the sizes."""
        self.sizes.put(None)


def command(program: str, version: tuple[int, int], source: Input, options: SourceOptions) -> list[str]:
    """Return the command line that writes raw RGB pictures of an input."""
    turned = [*TURNS[options.rotate], *FLIPS[options.flip]]
    filters = [*source.filters, TO_RGB, "format=rgb24", *turned, "showinfo=checksum=0"]
    if options.rate:
        filters.insert(0, f"select='{rate_expression(options.rate)}'")
    # One thread and a flush, or each frame would wait for the next: in the encoder's queue, and in the output's buffer.
    at_once = ["-threads", "1", "-flush_packets", "1"]
    passthrough = ["-fps_mode", "passthrough"] if version >= (5, 1) else ["-vsync", "passthrough"]
    return [
        program, "-hide_banner", "-nostats", "-nostdin", "-loglevel", "level+info", *source.arguments, "-map", "0:v:0",
        "-vf", ",".join(filters), "-autoscale", "0", *passthrough, *at_once,
        "-f", "rawvideo", "pipe:1",
    ]  # fmt: skip


def rate_expression(rate: float) -> str:
    """Return an expression of ffmpeg that is above 0 for at most `rate` frames a second.

    Register 0 holds the time at which the next frame is due. It advances by whole periods, so that uneven arrival does
    not lower the rate. Frames without a time pass, and if the time jumps back, it starts anew.
    """
    period = 1 / rate
    passes = f"1+0*st(0,max(ld(0)+{period:.6f},t))"
    anew = f"if(lt(t,ld(0)-{2 * period:.6f}),1+0*st(0,t+{period:.6f}),0)"
    return f"if(isnan(t),1,if(gte(t,ld(0)-{period / 4:.6f}),{passes},{anew}))"


def network_input(source: base.Source, version: tuple[int, int], options: dict[str, str]) -> Input:
    """Return the input for a URL. One with secrets goes to standard input."""
    options = {**QUICK_START, **options}
    live = ("-flags", "low_delay", "-use_wallclock_as_timestamps", "1")
    if not source.address.secrets:
        named = tuple(part for name, value in options.items() for part in (f"-{name}", value))
        return Input((*live, *named, "-i", source.address.url))
    url = source.address.url_with_login.replace("'", "%27")
    lines = ["ffconcat version 1.0", f"file '{url}'"]
    if version >= (5, 0):
        lines += [f"option {name} {value}" for name, value in options.items()]
    quick = tuple(part for name, value in QUICK_START.items() for part in (f"-{name}", value))
    listed = (*quick, "-f", "concat", "-safe", "0", "-protocol_whitelist", PROTOCOLS, "-i", "pipe:0")
    return Input((*live, *listed), script="\n".join(lines) + "\n")


def find(shown: str) -> tuple[str, tuple[int, int]]:
    """Return ffmpeg's path and version. Raises InputError if it is not installed or too old."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise InputError(f"{shown}: ffmpeg is not installed; run: sudo apt install ffmpeg")
    version = _version(program)
    if version < OLDEST:
        raise InputError(
            f"{shown}: ffmpeg {version[0]}.{version[1]} is too old; install {OLDEST[0]}.{OLDEST[1]} or newer"
        )
    return program, version


@functools.lru_cache(maxsize=4)
def _version(program: str) -> tuple[int, int]:
    """Return the version; builds that name none are from after 5.1."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, timeout=30, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{program}: cannot be run: {error}; install it again: sudo apt install ffmpeg") from None
    match = re.match(rb"ffmpeg version n?(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (99, 0)


def reason_of(lines: list[str], code: int | None) -> tuple[str, bool]:
    """Return why ffmpeg ended, in one line, and whether the host could not be reached."""
    if code is not None and code < 0:
        return f"ffmpeg was ended by {processes.signal_name(-code)}; see the system's log: journalctl -k", False
    errors = [TAGS.sub("", line) for line in lines if ERRORS.search(line)]
    said = errors or [TAGS.sub("", line) for line in lines if line]
    for pattern, reason in REASONS:
        for line in said:
            match = re.search(pattern, line, re.IGNORECASE)
            if match:
                detail = match[0].lower() if pattern is UNREACHABLE else line
                return reason.format(detail=detail), pattern is UNREACHABLE
    last = said[-1] if said else f"exit code {code}"
    return f"ffmpeg gave no frame: {last}; try: ffplay with the same address", False


def _fill(stream: Any, view: memoryview, stall_s: float | None) -> bool:
    """Fill the view. Returns False if the stream ends before. Raises TimeoutError if nothing arrives for so long."""
    arrives = pipes.poller(stream.fileno())
    filled = 0
    while filled < len(view):
        if stall_s and not arrives(stall_s):
            raise TimeoutError
        count = stream.readinto(view[filled:])
        if not count:
            return False
        filled += count
    return True
