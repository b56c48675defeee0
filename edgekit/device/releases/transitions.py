"""Transitions between the states of a home, each made by one rename. Those that write require the home's lock.

A release is confirmed from the moment its confirmed.json exists, and rolled back from the moment its failed.json
exists. If a command is killed after that, `recover` completes the steps that follow.
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
"""How often an attempt is refunded because the machine went down. There is a limit, because the release itself may be
what crashes the machine."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TEMPORARY = ".*.tmp"


def recover(home: Home) -> None:
    """Finish or undo what a killed command has left. Changes nothing otherwise."""
    leftovers = [home.root.glob(TEMPORARY), home.releases.glob(TEMPORARY), home.releases.glob(f"[0-9]*/{TEMPORARY}")]
    leftovers.append(home.trust.glob(TEMPORARY))
    for path in [path for some in leftovers for path in some]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    current, probation = records.current_number(home), records.read_probation(home)
    if current is None or records.has_failed(home, current):
        _point_current_to(home, rollback_target(home, current))
    elif records.is_confirmed(home, current):
        raise_version_floor(home)
    elif probation is None or probation.release != current:  # only if somebody removed a file by hand
        origin = rollback_target(home, current)
        if origin is None:
            probation = Probation(current, None, 1)
            records.write_probation(home, probation)
        else:
            _point_current_to(home, origin)
    if probation and (
        probation.release != records.current_number(home) or records.is_confirmed(home, probation.release)
    ):
        remove_file(home.trial)


def start_probation(home: Home, number: int, tries: int) -> None:
    """Make a validated release current. It is put on probation first, so that it is never current without probation."""
    records.write_probation(home, Probation(number, records.current_number(home), tries))
    _point_current_to(home, number)


def begin_attempt(home: Home, boot: str) -> int:
    """Return the release to start. If it is on probation, this uses up one of its attempts.

    If no attempt is left, the release is rolled back, and the one before it is returned. An attempt during which the
    machine went down is refunded; its boot ID differs from `boot`, the present one. If the disk is full, an attempt
    cannot be counted, so a confirmed release is started instead.
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
    """Return the release to start if nothing can be written: a confirmed one, which needs no attempt."""
    current = records.current_number(home)
    if current is None or records.read_probation(home) or records.has_failed(home, current):
        return rollback_target(home, current)
    return current


def _spend_attempt(home: Home, boot: str) -> None:
    probation = records.read_probation(home)
    if probation is None:
        return
    tries, outages = probation.tries, probation.outages or 0
    if probation.running and probation.boot != boot and outages < MAX_OUTAGES:
        tries, outages = tries + 1, outages + 1
    if tries > 0:
        records.write_probation(home, probation._replace(tries=tries - 1, boot=boot, running=True, outages=outages))
    else:
        fail_current(home, "it has used all its tries and was never confirmed")


def end_attempt(home: Home, *, give_back: bool) -> None:
    """End an attempt. `give_back` refunds it, for example if somebody stopped the service."""
    probation = records.read_probation(home)
    if probation and probation.running:
        records.write_probation(home, probation._replace(tries=probation.tries + give_back, running=False))


def confirm(home: Home, number: int | None = None) -> int:
    """Confirm the current release, unless it is confirmed already, and return its number.

    Raises ReleaseError if `number` is given and is not the current release.
    """
    current, probation = _current_or_error(home), records.read_probation(home)
    if number not in (None, current):
        raise ReleaseError(f"release {number}: is not the current release; release {current} is")
    if probation is not None:
        records.write_record(home.release(current) / CONFIRMED, {"from": probation.origin, "at": time.time()})
        raise_version_floor(home)
        remove_file(home.trial)
    return current


def rollback_target(home: Home, current: int | None) -> int | None:
    """Return the release to roll back to: the previous one, or else the newest confirmed one that can be loaded.

    If none of them can be loaded, the previous one is returned all the same; if none was ever confirmed, None.
    """
    previous = None if current is None else records.previous_release(home, current)
    candidates = [each for each in (previous, *records.confirmed_releases(home)) if each not in (None, current)]
    return next(
        (each for each in candidates if not current_release.refusal_reason(home, each)),
        candidates[0] if candidates else None,
    )


def fail_current(home: Home, why: str) -> int | None:
    """Mark the current release as failed and roll back. Returns the release that is current afterwards, or None."""
    current = _current_or_error(home)
    if (
        records.previous_release(home, current) is None
        and records.read_probation(home) is None
        and not records.was_first(home, current)
    ):
        raise ReleaseError(f"release {current}: the one before it was removed; install the bundle that you want")
    origin = rollback_target(home, current)
    mark_failed(home, current, why)
    _point_current_to(home, origin)
    remove_file(home.trial)
    return origin


def roll_back(home: Home, why: str, number: int | None = None) -> None:
    """Roll back the current release. If `number` is given, it must be the current release.

    A command may be repeated: if release `number` has been rolled back already, nothing happens.

    Raises
    ------
    TrustError
        The current release is confirmed and can be loaded, but the one before it cannot.
    """
    current_number = records.current_number(home)
    if number is None or number == current_number:
        if (
            current_number is not None
            and records.read_probation(home) is None
            and not current_release.refusal_reason(home)
        ):
            _check_loads(home, current_number, records.previous_release(home, current_number))
        fail_current(home, why)
    elif not records.has_failed(home, number):
        raise ReleaseError(f"release {number}: is not the current release; release {_current_or_error(home)} is")


def _check_loads(home: Home, current: int, previous: int | None) -> None:
    reason = "" if previous is None else current_release.refusal_reason(home, previous)
    if reason:
        raise TrustError(
            f"release {current} stays current, because the one before it cannot be loaded ({reason}); "
            f"install the bundle that you want"
        )


def mark_failed(home: Home, number: int, why: str) -> None:
    """Record that a release must not be used, and why."""
    records.write_record(home.release(number) / FAILED, {"why": why, "at": time.time()})


def raise_version_floor(home: Home) -> None:
    """Record the highest confirmed versions, so that older versions of a signed bundle are refused from now on."""
    floors = records.version_floors(home)
    if floors != records.read_record(home.floor) and not records.floors_are_lost(home):
        records.write_record(home.floor, floors)


def boot_id() -> str:
    """Return the kernel's ID of this boot, or "" if it provides none."""
    try:
        return Path(BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def remove_file(path: Path) -> None:
    """Remove a file if it exists."""
    if path.exists():
        path.unlink()
        sync_folder(path.parent)


def _current_or_error(home: Home) -> int:
    current = records.current_number(home)
    if current is None:
        raise ReleaseError(f"{home.root}: no release is current; install one first")
    return current


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
