"""A command killed by strace at each of its writes: at the k-th call of a name, for all names and all k.

strace counts calls by their names, so those of a run that nothing disturbs are listed first, with their numbers. Only
calls that change something below the home count.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.device.releases import records
from tests import requirements
from tests.device.releases.device import Device

CALLS = (
    "openat", "open", "creat", "write", "pwrite64", "writev", "sendfile", "copy_file_range", "fsync", "fdatasync",
    "ftruncate", "truncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
    "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "chmod", "fchmod", "fchmodat",
)  # fmt: skip
"""All that a command may write with; `known` leaves out what this processor's kernel lacks."""
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")
WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")
STRACE = ("strace", "-y", "-qq", "-s", "0", "-e", "signal=none")


@dataclass(frozen=True)
class Place:
    """The `number`-th call of a name in a command, and what it writes to."""

    call: str
    number: int
    path: str

    def __str__(self) -> str:
        return f"{self.call} {self.number} ({self.path})"


@dataclass
class Kills:
    """What was tried and found."""

    tried: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.tried.total()} kills: " + ", ".join(f"{number} {name}" for name, number in self.tried.items())


@functools.cache
def known() -> tuple[str, ...]:
    """The calls that strace knows here."""
    requirements.tracing()
    return tuple(call for call in CALLS if _traces(call))


def _traces(call: str) -> bool:
    done = subprocess.run(["strace", "-e", f"trace={call}", "-o", os.devnull, "true"], capture_output=True, check=False)
    return done.returncode == 0


def places(device: Device, words: Sequence[object], data: bytes, calls: Iterable[str] = ()) -> list[Place]:
    """Where a command writes below the home; it runs to its end."""
    log = device.root.with_name("strace")
    names = ",".join(known())
    traced = Device(device.root, device.environment, [*STRACE, "-e", f"trace={names}", "-o", str(log), *device.command])
    traced.do(*words, data=data)
    return list(_writes(log.read_text(errors="replace").splitlines(), device.root, frozenset(calls)))


def _writes(lines: Iterable[str], root: Path, calls: frozenset[str]) -> Iterator[Place]:
    counted: Counter[str] = Counter()
    for line in lines:
        found = CALL.match(line)
        if found is None:
            continue
        call, rest = found[1], found[2]
        counted[call] += 1
        inside = re.search(rf"{re.escape(str(root))}[^\">]*", rest)
        reads = call in ("open", "openat") and not WRITING.search(rest)
        if inside and not reads and (not calls or call in calls):
            yield Place(call, counted[call], os.path.relpath(inside[0], root))


def kill(device: Device, words: Sequence[object], data: bytes, place: Place) -> bool:
    """Run the command up to a place; False where it came to its end."""
    inject = f"inject={place.call}:signal=KILL:when={place.number}"
    command = [*STRACE, "-e", f"trace={place.call}", "-e", inject, "-o", os.devnull, *device.command]
    return Device(device.root, device.environment, command).run(*words, data=data).returncode in (-9, 137)


def at_every_write(
    device: Device, words: Sequence[object], kills: Kills, data: bytes = b"", calls: Iterable[str] = ()
) -> None:
    """Kill a command at each of its writes, every time from the same state, and look at what that leaves.

    There is a working release at every moment, if there was one before. The next command of any kind puts everything
    right. The same command again then does what it was to do.
    """
    saved = device.root.with_name("saved")
    shutil.rmtree(saved, ignore_errors=True)
    _copy(device.root, saved)
    had_one = records.current_number(device.home) is not None
    device.run(words[0], "--help")  # so that no byte code is left to be written
    writes = places(device, words, data, calls)
    expected = device.status()
    assert writes, words
    for place in writes:
        shutil.rmtree(device.root, ignore_errors=True)
        _copy(saved, device.root)
        what = f"{words[0]}: {place}"
        if not kill(device, words, data, place):
            continue
        kills.tried[str(words[0])] += 1
        kills.faults += [f"{what}: {each}" for each in _wrong(device, words, data, had_one, expected)]
    shutil.rmtree(saved, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _wrong(
    device: Device, words: Sequence[object], data: bytes, had_one: bool, expected: dict[str, object]
) -> Iterator[str]:
    if fault := device.fault():
        yield f"before anything is put right: {fault}"
    if had_one and records.current_number(device.home) is None:
        yield "before anything is put right: no release is current"
    done = device.run("boot") if had_one else device.run("status")
    if done.returncode:
        yield f"the next command fails: {done.stderr}"
        return
    if fault := device.fault():
        yield f"behind the next command: {fault}"
    running, now = records.read_probation(device.home), records.current_number(device.home)
    if running is not None and (now is None or records.is_confirmed(device.home, now)):
        yield "a trial of no release, or of a confirmed one"
    if left := [path.name for path in device.root.rglob("*.tmp")]:
        yield f"left over: {left}"
    rest = data
    if words[0] == "receive":
        begun = device.root / "incoming" / str(words[1])
        rest = data[begun.stat().st_size :] if begun.exists() else data
    again = device.run(*words, data=rest)
    if again.returncode:
        yield f"the same command again fails: {again.stderr}"
        return
    found = device.status()
    for key in ("state", "current", "back", "floor", "store", "incoming"):
        if found[key] != expected[key]:
            yield f"{key}: {found[key]}, undisturbed it is {expected[key]}"
