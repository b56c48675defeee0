"""From one state to the next, each by one rename. All but `boot_id` ask for the lock.

A release is confirmed from the moment at which its confirmed.json is there, and taken back from that of its
failed.json. What follows from these, `recover` can do as well.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from edgekit.device.releases import current, records
from edgekit.device.releases.home import Home
from edgekit.device.releases.records import CONFIRMED, FAILED, Trial
from edgekit.runner.errors import ReleaseError, TrustError
from edgekit.runner.files import sync_folder

MOST_OUTAGES = 5
"""How often a try is given back because the machine went down meanwhile: a release may be what takes it down."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TEMPORARY = ".*.tmp"


def recover(home: Home) -> None:
    """Finish or undo what a kill has cut short; changes nothing where nothing was."""
    leftovers = [home.root.glob(TEMPORARY), home.releases.glob(TEMPORARY), home.releases.glob(f"[0-9]*/{TEMPORARY}")]
    leftovers.append(home.trust.glob(TEMPORARY))
    for left in [path for some in leftovers for path in some]:
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    now, running = records.current(home), records.trial(home)
    if now is None or records.has_failed(home, now):
        _turn(home, way_back(home, now))
    elif records.is_confirmed(home, now):
        raise_floor(home)
    elif running is None or running.release != now:  # only where somebody removed a file by hand
        origin = way_back(home, now)
        if origin is None:
            running = Trial(now, None, 1)
            records.write_trial(home, running)
        else:
            _turn(home, origin)
    if running and (running.release != records.current(home) or records.is_confirmed(home, running.release)):
        remove(home.trial)


def put_on_trial(home: Home, number: int, tries: int) -> None:
    """Turn to a proven release; the trial is written first, so that it is never current without one."""
    records.write_trial(home, Trial(number, records.current(home), tries))
    _turn(home, number)


def begin(home: Home, boot: str) -> int:
    """The release to start. On trial, a try is spent before anything starts; without one left it goes back.

    A try that ended because the machine went down, by `boot`, is given back. Where the disk takes no more, a try cannot
    be counted: the confirmed release is started then.
    """
    try:
        recover(home)
        _spend(home, boot)
    except OSError:
        number = untried(home)
        if number is None:
            raise
        return number
    return _now(home)


def untried(home: Home) -> int | None:
    """The release to start where nothing can be written: a confirmed one, for which no try is counted."""
    now = records.current(home)
    if now is None or records.trial(home) or records.has_failed(home, now):
        return way_back(home, now)
    return now


def _spend(home: Home, boot: str) -> None:
    running = records.trial(home)
    if running is None:
        return
    tries, outages = running.tries, running.outages or 0
    if running.running and running.boot != boot and outages < MOST_OUTAGES:
        tries, outages = tries + 1, outages + 1
    if tries > 0:
        records.write_trial(home, running._replace(tries=tries - 1, boot=boot, running=True, outages=outages))
    else:
        go_back(home, "no try was left: it was started, and never confirmed")


def end(home: Home, *, give_back: bool) -> None:
    """A try has ended; `give_back`: it says nothing against the release, as where somebody stopped the service."""
    running = records.trial(home)
    if running and running.running:
        records.write_trial(home, running._replace(tries=running.tries + give_back, running=False))


def confirm(home: Home, number: int | None = None) -> int:
    """The current release, which `number` may name, is the one to keep. It may be so already."""
    now, running = _now(home), records.trial(home)
    if number not in (None, now):
        raise ReleaseError(f"release {number}: is not current, release {now} is")
    if running is not None:
        records.write(home.release(now) / CONFIRMED, {"from": running.origin, "at": time.time()})
        raise_floor(home)
        remove(home.trial)
    return now


def way_back(home: Home, now: int | None) -> int | None:
    """The release to turn to from one: that before it, or the newest confirmed one that loads.

    That before it also where none loads; None where nothing was confirmed.
    """
    before = None if now is None else records.before(home, now)
    known = [each for each in (before, *records.confirmed(home)) if each not in (None, now)]
    return next((each for each in known if not current.why_refused(home, each)), known[0] if known else None)


def go_back(home: Home, why: str) -> int | None:
    """Take the current release back and note why; the one that is current then, None where it was the first."""
    now = _now(home)
    if records.before(home, now) is None and records.trial(home) is None and not records.was_first(home, now):
        raise ReleaseError(f"release {now}: the one before it was removed; install the bundle that you want")
    origin = way_back(home, now)
    fail(home, now, why)
    _turn(home, origin)
    remove(home.trial)
    return origin


def roll_back(home: Home, why: str, number: int | None = None) -> None:
    """The same where `number` is current; nothing where that has been taken back already, so it may be asked twice.

    Raises
    ------
    TrustError
        A confirmed release would be left, which loads, for one that does not.
    """
    now = records.current(home)
    if number is None or number == now:
        if now is not None and records.trial(home) is None and not current.why_refused(home):
            _check_loads(home, now, records.before(home, now))
        go_back(home, why)
    elif not records.has_failed(home, number):
        raise ReleaseError(f"release {number}: is not current, release {_now(home)} is")


def _check_loads(home: Home, now: int, before: int | None) -> None:
    reason = "" if before is None else current.why_refused(home, before)
    if reason:
        raise TrustError(
            f"release {now} stays: the one before would not load ({reason}); install the bundle that you want"
        )


def fail(home: Home, number: int, why: str) -> None:
    """Note that a release is not to be used, and why."""
    records.write(home.release(number) / FAILED, {"why": why, "at": time.time()})


def raise_floor(home: Home) -> None:
    """No older version of a signed bundle than any that was confirmed is taken from now on."""
    floors = records.floors(home)
    if floors != records.read(home.floor) and not records.floors_are_lost(home):
        records.write(home.floor, floors)


def boot_id() -> str:
    """Which start of the machine this is; empty where the kernel does not say."""
    try:
        return Path(BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def remove(path: Path) -> None:
    """A file that may be there."""
    if path.exists():
        path.unlink()
        sync_folder(path.parent)


def _now(home: Home) -> int:
    now = records.current(home)
    if now is None:
        raise ReleaseError(f"{home.root}: no release is current; install one first")
    return now


def _turn(home: Home, number: int | None) -> None:
    """Let `current` point to another release."""
    if number is None:
        if os.path.lexists(home.current):
            os.unlink(home.current)
            sync_folder(home.root)
    elif number != records.current(home):
        temporary = home.root / f".current.{os.getpid()}.tmp"
        os.symlink(f"releases/{number}", temporary)
        os.replace(temporary, home.current)
        sync_folder(home.root)
