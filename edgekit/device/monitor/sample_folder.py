"""A folder of samples that are kept for the desk: at most so many a day, and so many bytes in all.

    FOLDER/2026-11-26/0.973100-1795646112123-5f3a77c1.npz    raw, outputs, and about: JSON as uint8
    FOLDER/bundle-3fa94c0d12ab.json                          the bundle that answered: its labels and its raw sample

A file's name begins with its doubt, from 0 to 1. So the folder itself says which sample goes first, and a process that
was killed leaves nothing to repair. No file but those is ever removed.
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
"""What a killed process was writing."""


class SampleFolder:
    """The folder, open for writing. Several processes may write into one."""

    def __init__(self, folder: str | os.PathLike[str], per_day: int, most_bytes: int) -> None:
        if not isinstance(folder, (str, os.PathLike)) or not str(folder):
            raise InputError(f"keep: got {folder!r}; name a folder")
        self.folder, self.per_day, self.most_bytes = Path(folder), per_day, most_bytes
        try:
            self._make()
            self._bytes(self.folder)  # the bundle's facts, which a killed process may have been writing
            self._days = {day.name: self._bytes(day) for day in day_folders(self.folder)}
        except OSError as error:
            raise ResourceError(f"keep: {self.folder}: {error.strerror or error}; name a folder to write in") from None
        for day in list(self._days):
            self._trim(day, per_day)
        self._evict(0, 2.0, "")

    @property
    def size_bytes(self) -> int:
        """Of all samples."""
        return sum(self._days.values())

    def least(self, day: str) -> float:
        """The doubt that a sample of the day has to exceed; -1 while any is welcome."""
        found = sample_names(self.folder / day)
        return uncertainty_of(found[0]) if len(found) >= self.per_day else -1.0

    def add(self, day: str, value: float, time_ms: int, data: bytes) -> bool:
        """Write a sample if it is more doubtful than what it drives out; OSError where the disk does not take it."""
        folder = self.folder / day
        if value <= self.least(day) or len(data) > self.most_bytes:
            return False
        if not self._evict(len(data), value, day):
            return False
        self._trim(day, self.per_day - 1)
        self._make()
        make_folder(folder)
        write_atomically(folder / f"{value:.6f}-{max(0, time_ms)}-{os.urandom(4).hex()}.npz", data)
        self._trim(day, self.per_day)  # another process may have added one in the same moment
        self._days[day] = self._bytes(folder)
        return True

    def _make(self) -> None:
        """The folder, where it is missing: at first, or because somebody removed it."""
        if not self.folder.is_dir():
            make_folder(self.folder)
            self.folder.chmod(0o700)  # pictures and sounds of people: nobody else reads them

    def _trim(self, day: str, most: int) -> None:
        """Leave the most doubtful ones of a day."""
        folder = self.folder / day
        found = sample_names(folder)
        for name in found[: max(0, len(found) - most)]:
            self._remove(folder / name)

    def _evict(self, more: int, value: float, into: str) -> bool:
        """Make room: the day with the most bytes gives its least doubtful. By no clock, for clocks jump.

        False where the newcomer itself would be the least doubtful of that day.
        """
        while self.size_bytes + more > self.most_bytes and self._days:
            day = max(sorted(self._days), key=lambda each: self._days[each] + (more if each == into else 0))
            found = sample_names(self.folder / day)
            if found and day == into and value <= uncertainty_of(found[0]):
                return False
            if found:
                self._remove(self.folder / day / found[0])
            else:
                self._days.pop(day, None)
        return self.size_bytes + more <= self.most_bytes

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
        """Of a day's samples. What a process that is no more was writing is removed."""
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
    """The folders of days, the earliest first."""
    return sorted(each for each in folder.iterdir() if DAY.fullmatch(each.name) and each.is_dir())


def sample_names(day: Path) -> list[str]:
    """The samples of a day, the least doubtful first."""
    try:
        return sorted(name for name in os.listdir(day) if SAMPLE.fullmatch(name))
    except FileNotFoundError:
        return []


def uncertainty_of(name: str) -> float:
    """Of a sample, by its file's name."""
    return float(name[:8])


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # where this would send it Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
