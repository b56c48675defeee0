"""The folder that holds a device's releases: where it is, who may write to it, and the lock for changing it."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgekit.runner import device_home
from edgekit.runner.errors import ReleaseError, ResourceError, TrustError
from edgekit.runner.files import make_folder, sync_folder

LOCK_TIMEOUT_S = 30.0
POLL_S = 0.02
READABLE = 0o755
"""Mode of the folders in a home."""


class Home:
    """The folder of a device's releases, and the paths in it. `find_home` determines the root."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.incoming, self.store, self.releases = (self.root / name for name in ("incoming", "store", "releases"))
        self.current, self.trust = self.root / "current", self.root / device_home.POLICY_FOLDER
        self.trial, self.floor = self.root / "trial.json", self.root / "floor.json"

    def release(self, number: int) -> Path:
        """Return the folder of a release."""
        return self.releases / str(number)

    def exists(self) -> bool:
        """Whether anything was ever received here. Raises TrustError if other users could have written it.

        Any user may use a home that belongs to root, and also the home that root has chosen (/var/lib/edge, or the one
        that /etc/edge/trust names), whoever owns it.
        """
        root = str(self.root)
        if not device_home.exists(root):
            return False
        owners = device_home.trusted_owners(root)
        _check(self.root, owners)
        _check_above(self.root)
        for folder in (self.incoming, self.store, self.releases):
            if device_home.exists(str(folder)):
                _check(folder, owners)
        for path in (self.trial, self.floor, *self.releases.glob("[0-9]*"), *self.releases.glob("[0-9]*/*")):
            with suppress(FileNotFoundError):  # another command moved or removed it
                _check_unwritable(path, os.lstat(path))
        return True

    def is_mine(self) -> bool:
        """Whether this user may change the home; others may only read it."""
        return os.lstat(self.root).st_uid == os.geteuid()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the home, whose root must exist.

        Raises
        ------
        ReleaseError
            There is no such folder.
        ResourceError
            Another command has held the lock for half a minute.
        TrustError
            The home belongs to another user, or other users can write to it.
        """
        if not self.exists():
            raise ReleaseError(
                f"{self.root}: no such folder; `edgerun receive` creates it, or name another with --home"
            )
        if not self.is_mine():
            owner = os.lstat(self.root).st_uid
            raise TrustError(
                f"{self.root}: belongs to user {owner}, but this is user {os.geteuid()}; run as its owner to change it"
            )
        handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            deadline = time.monotonic() + LOCK_TIMEOUT_S
            while not try_lock(handle):
                if time.monotonic() > deadline:
                    raise ResourceError(f"{self.root}: another command is running here; try again when it has ended")
                time.sleep(POLL_S)
            yield
        finally:
            os.close(handle)


def find_home(folder: str | None = None) -> Home:
    """Return the given folder, else $EDGERUN_HOME, else /var/lib/edge if it exists, else ~/.edge."""
    return Home(device_home.find_home(folder))


def create_home(home: Home) -> None:
    """Create the root and its folders. Raises TrustError if other users can write there.

    The root's mode decides who may read: /var/lib/edge is for every user, any other home only for its owner.
    """
    if not device_home.exists(str(home.root)):
        make_folder(home.root.parent)
        home.root.mkdir(mode=READABLE if str(home.root) == device_home.SYSTEM_HOME else 0o700, exist_ok=True)
    home.exists()
    for folder in (home.incoming, home.store, home.releases):
        if not folder.exists():
            folder.mkdir(mode=READABLE, exist_ok=True)
            sync_folder(home.root)


def try_lock(handle: int) -> bool:
    """Try to lock an open file. Returns whether this process holds the lock now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check(folder: Path, owners: set[int]) -> None:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise TrustError(f"{folder}: is a link or a file; releases need a folder, so name one of your own with --home")
    if status.st_uid not in owners:
        raise TrustError(
            f"{folder}: belongs to user {status.st_uid}, but this is user {os.geteuid()}; run as its owner"
        )
    _check_unwritable(folder, status)


def _check_unwritable(path: Path, status: os.stat_result) -> None:
    if status.st_mode & device_home.OTHERS_MAY_WRITE and not stat.S_ISLNK(status.st_mode):
        mode, fix = f"{status.st_mode & 0o777:o}", "700" if stat.S_ISDIR(status.st_mode) else "go-w"
        raise TrustError(
            f"{path}: other users can write there (mode {mode}); check what is inside, then `chmod {fix} {path}`"
        )


def _check_above(root: Path) -> None:
    for above in Path(os.path.realpath(root)).parents:
        status = os.stat(above)
        is_writable_by_others = status.st_mode & device_home.OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX
        if is_writable_by_others or status.st_uid not in (0, os.geteuid()):
            raise TrustError(
                f"{root}: other users can replace it, because they can write to {above}; name another folder "
                f"with --home"
            )
