"""Free disk space by removing what is no longer needed: old releases, their files, and abandoned partial files."""

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
    """Remove all releases except the current one, the one to roll back to, and the newest `keep` others.

    This also removes the files of those releases, complete or partial, and files that belong to no release and have not
    changed since the current release was built. The caller holds the lock. Returns the numbers of the removed releases
    and the freed bytes.
    """
    current, probation = records.current_number(home), records.read_probation(home)
    needed = {
        current,
        records.previous_release(home, current) if current is not None else None,
        probation.origin if probation else None,
    }
    others = [number for number in records.release_numbers(home) if number not in needed]
    removed = [number for number in others[: max(len(others) - keep, 0)] if _is_free(home.release(number))]
    removed_digests = {sha256 for number in removed for sha256 in records.installed_files(home, number).values()}
    if current is not None and removed:
        _keep_floors(home, current)
    freed = sum(_remove(home, number) for number in removed)
    retained_digests = {
        sha256 for number in records.release_numbers(home) for sha256 in records.installed_files(home, number).values()
    }
    older = (
        records.read_record(home.release(current) / records.INSTALL).get(records.OLDER) if current is not None else None
    )
    for folder in filter(Path.is_dir, (home.store, home.incoming)):
        for path, status in incoming_files.regular_files(folder):
            is_old = isinstance(older, dict) and older.get(f"{folder.name}/{path.name}") == status.st_mtime_ns
            if path.name not in retained_digests and (path.name in removed_digests or is_old) and _is_free(path):
                path.unlink()
                freed += status.st_size
        sync_folder(folder)
    return removed, freed


def _keep_floors(home: Home, current: int) -> None:
    """Copy the version floors of removed releases into the current release, in case floor.json is damaged one day."""
    path, floors = home.release(current) / records.INSTALL, records.version_floors(home)
    record = records.read_record(path)
    if record and record.get(records.FLOORS, {}) != floors:
        records.write_record(path, {**record, records.FLOORS: floors})


def _is_free(path: Path) -> bool:
    """Whether no command is currently validating the release or appending to the file."""
    return can_lock(path, fcntl.LOCK_EX)


def _remove(home: Home, number: int) -> int:
    """Rename a release and then remove it, so that `recover` can finish an interrupted removal.

    Returns the number of freed bytes. Files that are also in the store do not count, because they stay there.
    """
    aside = home.releases / f".{number}.gone.tmp"
    os.replace(home.release(number), aside)
    sync_folder(home.releases)
    freed = sum(status.st_size for path in aside.iterdir() if (status := path.lstat()).st_nlink == 1)
    shutil.rmtree(aside)
    sync_folder(home.releases)
    return freed
