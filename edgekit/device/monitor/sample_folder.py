"""A folder of samples kept for the workstation, with limits per day and for the total size.

    FOLDER/2026-11-26/0.973100-1795646112123-5f3a77c1.npz    arrays `raw`, `outputs` and `about` (JSON)
    FOLDER/bundle-3fa94c0d12ab.json                          facts about the bundle that answered, such as its labels

A file's name begins with its uncertainty, from 0 to 1, so that a listing of the folder shows which sample is removed
first, and nothing has to be repaired after a process was killed. Files of other programs are never removed.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from edgekit.runner.errors import InputError, ResourceError
from edgekit.runner.files import make_folder, write_atomically

DAY = re.compile(r"\d{4}-\d\d-\d\d")
SAMPLE = re.compile(r"([01]\.\d{6})-(\d+)-[0-9a-f]{8}\.npz")
TEMPORARY = re.compile(r"\.[0-9a-f]{8}\.\d+\.tmp")
"""Names of files while they are being written; a killed process leaves them behind."""


class SampleFolder:
    """A folder of samples, opened for writing. Several processes may write to the same one."""

    def __init__(self, folder: str | os.PathLike[str], per_day: int, most_bytes: int) -> None:
        if not isinstance(folder, (str, os.PathLike)) or not str(folder):
            raise InputError(f"keep: got {folder!r}; name a folder")
        self.folder, self.per_day, self.most_bytes = Path(folder), per_day, most_bytes
        try:
            self._create_folder()
            self._bytes(self.folder)  # also removes what a killed process left of a file about a bundle
            self._days = {day.name: self._bytes(day) for day in day_folders(self.folder)}
        except OSError as error:
            raise ResourceError(
                f"keep: {self.folder}: {error.strerror or error}; name a folder that can be written"
            ) from None
        for day in list(self._days):
            self._trim(day, per_day)
        self._evict(0, 2.0, "")

    @property
    def size_bytes(self) -> int:
        """The size of all samples."""
        return sum(self._days.values())

    def least(self, day: str) -> float:
        """Return the uncertainty that a sample of the day must exceed, or -1 until the day is full."""
        names = sample_names(self.folder / day)
        return uncertainty_of(names[0]) if len(names) >= self.per_day else -1.0

    def add(self, day: str, value: float, time_ms: int, data: bytes) -> bool:
        """Write a sample, unless the samples that it would replace are more uncertain. Returns whether it was written.

        Raises OSError if the disk refuses it.
        """
        folder = self.folder / day
        if value <= self.least(day) or len(data) > self.most_bytes:
            return False
        if not self._evict(len(data), value, day):
            return False
        self._trim(day, self.per_day - 1)
        self._create_folder()
        make_folder(folder)
        write_atomically(folder / f"{value:.6f}-{max(0, time_ms)}-{os.urandom(4).hex()}.npz", data)
        self._trim(day, self.per_day)  # another process may have added one at the same moment
        self._days[day] = self._bytes(folder)
        return True

    def _create_folder(self) -> None:
        """Create the folder if it is missing, initially or because somebody removed it."""
        if not self.folder.is_dir():
            make_folder(self.folder)
            self.folder.chmod(0o700)  # samples may show people, so only the owner may read them

    def _trim(self, day: str, limit: int) -> None:
        """Keep only the most uncertain samples of a day."""
        folder = self.folder / day
        names = sample_names(folder)
        for name in names[: max(0, len(names) - limit)]:
            self._remove(folder / name)

    def _evict(self, new_bytes: int, value: float, target_day: str) -> bool:
        """Free space by removing the least uncertain samples of whichever day takes the most space.

        Which day is the oldest does not matter, because clocks can jump. Returns False if the new sample itself would
        be the least uncertain of that day.
        """
        while self.size_bytes + new_bytes > self.most_bytes and self._days:
            day = max(sorted(self._days), key=lambda each: self._days[each] + (new_bytes if each == target_day else 0))
            names = sample_names(self.folder / day)
            if names and day == target_day and value <= uncertainty_of(names[0]):
                return False
            if names:
                self._remove(self.folder / day / names[0])
            else:
                self._days.pop(day, None)
        return self.size_bytes + new_bytes <= self.most_bytes

    def _remove(self, path: Path) -> None:
        folder = path.parent
        with suppress(FileNotFoundError):
            path.unlink()
        self._days[folder.name] = self._bytes(folder)
        if not sample_names(folder):
            self._days.pop(folder.name)
            with suppress(OSError):
                folder.rmdir()

    def _bytes(self, folder: Path) -> int:
        """Return the size of a day's samples. Partial files of killed processes are removed."""
        total = 0
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if SAMPLE.fullmatch(entry.name):
                        total += entry.stat().st_size
                    elif TEMPORARY.fullmatch(entry.name) and not _is_running(int(entry.name.split(".")[2])):
                        os.unlink(entry)
        return total


def day_folders(folder: Path) -> list[Path]:
    """Return the folders of the days, the earliest first."""
    return sorted(each for each in folder.iterdir() if DAY.fullmatch(each.name) and each.is_dir())


def sample_names(day: Path) -> list[str]:
    """Return the samples of a day, the least uncertain first."""
    try:
        return sorted(name for name in os.listdir(day) if SAMPLE.fullmatch(name))
    except FileNotFoundError:
        return []


def uncertainty_of(name: str) -> float:
    """Return a sample's uncertainty from its file name."""
    return float(name[:8])


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # where os.kill would send it Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
