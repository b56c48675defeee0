"""Frees the disk of what no command will ask for: old releases, their files, and pieces that nobody goes on sending."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from edgekit.device.releases import incoming_files, records
from edgekit.device.releases.home import Home
from edgekit.runner.files import can_lock, sync_folder

KEEP_RELEASES = 2


def remove_old_releases(home: Home, keep: int = KEEP_RELEASES) -> tuple[list[int], int]:
    """Remove releases but the current one, the one it would go back to, and the newest `keep` others.

    Files in the store and pieces go with them, as do those that belong to no release and were there, as they are now,
    when the current one was built. Asks for the lock. Returns the numbers of those removed and the bytes of all files.
    """
    now, running = records.current_number(home), records.read_probation(home)
    needed = {
        now,
        records.previous_release(home, now) if now is not None else None,
        running.origin if running else None,
    }
    others = [number for number in records.release_numbers(home) if number not in needed]
    removed = [number for number in others[: max(len(others) - keep, 0)] if _is_free(home.release(number))]
    gone = {sha256 for number in removed for sha256 in records.installed_files(home, number).values()}
    if now is not None and removed:
        _keep_floors(home, now)
    freed = sum(_remove(home, number) for number in removed)
    kept = {
        sha256 for number in records.release_numbers(home) for sha256 in records.installed_files(home, number).values()
    }
    older = records.read_record(home.release(now) / records.INSTALL).get(records.OLDER) if now is not None else None
    for folder in filter(Path.is_dir, (home.store, home.incoming)):
        for path, found in incoming_files.regular_files(folder):
            is_old = isinstance(older, dict) and older.get(f"{folder.name}/{path.name}") == found.st_mtime_ns
            if path.name not in kept and (path.name in gone or is_old) and _is_free(path):
                path.unlink()
                freed += found.st_size
        sync_folder(folder)
    return removed, freed


def _keep_floors(home: Home, now: int) -> None:
    """Those of the releases that go are in floor.json, and here where that is damaged one day."""
    path, floors = home.release(now) / records.INSTALL, records.version_floors(home)
    record = records.read_record(path)
    if record and record.get(records.FLOORS, {}) != floors:
        records.write_record(path, {**record, records.FLOORS: floors})


def _is_free(path: Path) -> bool:
    """Whether no command is proving the release, or appending to the file, at this moment."""
    return can_lock(path, fcntl.LOCK_EX)


def _remove(home: Home, number: int) -> int:
    """Rename, then remove: `recover` finishes what a kill cuts short. Its bytes that are not in the store as well."""
    aside = home.releases / f".{number}.gone.tmp"
    os.replace(home.release(number), aside)
    sync_folder(home.releases)
    freed = sum(found.st_size for path in aside.iterdir() if (found := path.lstat()).st_nlink == 1)
    shutil.rmtree(aside)
    sync_folder(home.releases)
    return freed
