"""From one state to the next, each by one rename. All but `boot_id` ask for the lock.

A release is confirmed from the moment at which its confirmed.json is there, and taken back from that of its
failed.json. What follows from these, `recover` can do as well.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from edgekit.device.releases import current_release, records
from edgekit.device.releases.home import Home
from edgekit.device.releases.records import CONFIRMED, FAILED, Probation
from edgekit.runner.errors import ReleaseError, TrustError
from edgekit.runner.files import sync_folder

MAX_OUTAGES = 5
"""How often a try is given back because the machine went down meanwhile: a release may be what takes it down."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TEMPORARY = ".*.tmp"


def recover(home: Home) -> None:
    """Finish or undo what a kill has cut short; changes nothing where nothing was."""
    leftovers = [home.root.glob(TEMPORARY), home.releases.glob(TEMPORARY), home.releases.glob(f"[0-9]*/{TEMPORARY}")]
    leftovers.append(home.trust.glob(TEMPORARY))
    for left in [path for some in leftovers for path in some]:
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    now, running = records.current_number(home), records.read_probation(home)
    if now is None or records.has_failed(home, now):
        _point_current_to(home, rollback_target(home, now))
    elif records.is_confirmed(home, now):
        raise_version_floor(home)
    elif running is None or running.release != now:  # only where somebody removed a file by hand
        origin = rollback_target(home, now)
        if origin is None:
            running = Probation(now, None, 1)
            records.write_probation(home, running)
        else:
            _point_current_to(home, origin)
    if running and (running.release != records.current_number(home) or records.is_confirmed(home, running.release)):
        remove_file(home.trial)


def start_probation(home: Home, number: int, tries: int) -> None:
    """Turn to a proven release; the trial is written first, so that it is never current without one."""
    records.write_probation(home, Probation(number, records.current_number(home), tries))
    _point_current_to(home, number)


def begin_attempt(home: Home, boot: str) -> int:
    """The release to start. On trial, a try is spent before anything starts; without one left it goes back.

    A try that ended because the machine went down, by `boot`, is given back. Where the disk takes no more, a try cannot
    be counted: the confirmed release is started then.
    """
    try:
        recover(home)
        _spend_attempt(home, boot)
    except OSError:
        number = release_without_attempt(home)
        if number is None:
            raise
        return number
    return _current_or_error(home)


def release_without_attempt(home: Home) -> int | None:
    """The release to start where nothing can be written: a confirmed one, for which no try is counted."""
    now = records.current_number(home)
    if now is None or records.read_probation(home) or records.has_failed(home, now):
        return rollback_target(home, now)
    return now


def _spend_attempt(home: Home, boot: str) -> None:
    running = records.read_probation(home)
    if running is None:
        return
    tries, outages = running.tries, running.outages or 0
    if running.running and running.boot != boot and outages < MAX_OUTAGES:
        tries, outages = tries + 1, outages + 1
    if tries > 0:
        records.write_probation(home, running._replace(tries=tries - 1, boot=boot, running=True, outages=outages))
    else:
        fail_current(home, "no try was left: it was started, and never confirmed")


def end_attempt(home: Home, *, give_back: bool) -> None:
    """A try has ended; `give_back`: it says nothing against the release, as where somebody stopped the service."""
    running = records.read_probation(home)
    if running and running.running:
        records.write_probation(home, running._replace(tries=running.tries + give_back, running=False))


def confirm(home: Home, number: int | None = None) -> int:
    """The current release, which `number` may name, is the one to keep. It may be so already."""
    now, running = _current_or_error(home), records.read_probation(home)
    if number not in (None, now):
        raise ReleaseError(f"release {number}: is not current, release {now} is")
    if running is not None:
        records.write_record(home.release(now) / CONFIRMED, {"from": running.origin, "at": time.time()})
        raise_version_floor(home)
        remove_file(home.trial)
    return now


def rollback_target(home: Home, now: int | None) -> int | None:
    """The release to turn to from one: that before it, or the newest confirmed one that loads.

    That before it also where none loads; None where nothing was confirmed.
    """
    before = None if now is None else records.previous_release(home, now)
    known = [each for each in (before, *records.confirmed_releases(home)) if each not in (None, now)]
    return next((each for each in known if not current_release.refusal_reason(home, each)), known[0] if known else None)


def fail_current(home: Home, why: str) -> int | None:
    """Take the current release back and note why; the one that is current then, None where it was the first."""
    now = _current_or_error(home)
    if (
        records.previous_release(home, now) is None
        and records.read_probation(home) is None
        and not records.was_first(home, now)
    ):
        raise ReleaseError(f"release {now}: the one before it was removed; install the bundle that you want")
    origin = rollback_target(home, now)
    mark_failed(home, now, why)
    _point_current_to(home, origin)
    remove_file(home.trial)
    return origin


def roll_back(home: Home, why: str, number: int | None = None) -> None:
    """The same where `number` is current; nothing where that has been taken back already, so it may be asked twice.

    Raises
    ------
    TrustError
        A confirmed release would be left, which loads, for one that does not.
    """
    now = records.current_number(home)
    if number is None or number == now:
        if now is not None and records.read_probation(home) is None and not current_release.refusal_reason(home):
            _check_loads(home, now, records.previous_release(home, now))
        fail_current(home, why)
    elif not records.has_failed(home, number):
        raise ReleaseError(f"release {number}: is not current, release {_current_or_error(home)} is")


def _check_loads(home: Home, now: int, before: int | None) -> None:
    reason = "" if before is None else current_release.refusal_reason(home, before)
    if reason:
        raise TrustError(
            f"release {now} stays: the one before would not load ({reason}); install the bundle that you want"
        )


def mark_failed(home: Home, number: int, why: str) -> None:
    """Note that a release is not to be used, and why."""
    records.write_record(home.release(number) / FAILED, {"why": why, "at": time.time()})


def raise_version_floor(home: Home) -> None:
    """No older version of a signed bundle than any that was confirmed is taken from now on."""
    floors = records.version_floors(home)
    if floors != records.read_record(home.floor) and not records.floors_are_lost(home):
        records.write_record(home.floor, floors)


def boot_id() -> str:
    """Which start of the machine this is; empty where the kernel does not say."""
    try:
        return Path(BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def remove_file(path: Path) -> None:
    """A file that may be there."""
    if path.exists():
        path.unlink()
        sync_folder(path.parent)


def _current_or_error(home: Home) -> int:
    now = records.current_number(home)
    if now is None:
        raise ReleaseError(f"{home.root}: no release is current; install one first")
    return now


def _point_current_to(home: Home, number: int | None) -> None:
    """Let `current` point to another release."""
    if number is None:
        if os.path.lexists(home.current):
            os.unlink(home.current)
            sync_folder(home.root)
    elif number != records.current_number(home):
        temporary = home.root / f".current.{os.getpid()}.tmp"
        os.symlink(f"releases/{number}", temporary)
        os.replace(temporary, home.current)
        sync_folder(home.root)
