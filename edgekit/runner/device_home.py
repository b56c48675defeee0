"""The home of a device: the folder that holds its releases and its trust policy.

Every load needs this module, so it imports almost nothing.

A device is in signed mode if the home in use has a policy, if /var/lib/edge has one, or if the root-owned file
/etc/edge/trust names a home. The last two apply whatever `EDGERUN_HOME` and `HOME` are. /etc/edge/trust has one line,
the absolute path of the home whose policy applies.

A path that cannot be examined never counts as missing. Otherwise a user who may not enter a folder would escape the
policy inside it.
"""

from __future__ import annotations

import os
import stat
import sys

from edgekit.runner.errors import TrustError

HOME_VARIABLE = "EDGERUN_HOME"
SYSTEM_HOME = "/var/lib/edge"
SIGNED_MODE_FILE = "/etc/edge/trust"
POLICY_FOLDER = "trust"
"""The folder of the policy inside a home."""
MOST_BYTES = 4096
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_home(folder: str | None = None) -> str:
    """Return `folder`, else $EDGERUN_HOME, else /var/lib/edge if it exists, else ~/.edge."""
    home = folder or os.environ.get(HOME_VARIABLE)
    if not home:
        home = os.path.expanduser("~/.edge")
        if exists(SYSTEM_HOME) or home.startswith("~"):  # "~" remains if the user has no home folder
            home = SYSTEM_HOME
    return os.path.abspath(home)


def exists(path: str) -> bool:
    """Whether anything has this name, even a broken link. Raises TrustError if that cannot be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error) from None
    return True


def homes_with_policy(home: str) -> list[str]:
    """Return the homes whose policies a bundle must satisfy; empty if the device is not in signed mode.

    `home` is the one in use. The system's policy applies in addition to the policy of `home`, because any user can name
    another home. Raises TrustError if it cannot be determined whether there is a policy.
    """
    system = _home_in_signed_mode_file() or (SYSTEM_HOME if exists(os.path.join(SYSTEM_HOME, POLICY_FOLDER)) else None)
    homes = [system] if system else []
    if home != system and exists(os.path.join(home, POLICY_FOLDER)):
        homes.append(home)
    return homes


def trusted_owners(home: str) -> set[int]:
    """Return the users whose files in a home are trusted.

    They are root, this user, and the owner of a home that root has chosen.
    """
    owners = {0}  # Windows reports 0 for every file
    if sys.platform != "win32":
        owners.add(os.geteuid())
    if home in (SYSTEM_HOME, _home_in_signed_mode_file()):
        owners.add(os.lstat(home).st_uid)
    return owners


def _home_in_signed_mode_file() -> str | None:
    """Return the home that /etc/edge/trust names, or None if there is no such file.

    Raises TrustError if anybody but root can write the file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(SIGNED_MODE_FILE, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(SIGNED_MODE_FILE, error) from None
    with open(handle, "rb") as stream:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & OTHERS_MAY_WRITE:
            raise TrustError(
                f"{SIGNED_MODE_FILE}: belongs to user {facts.st_uid} with mode {facts.st_mode & 0o777:o}; it "
                f"must be a file of root that nobody else can write: check what is inside, then "
                f"`chown root {SIGNED_MODE_FILE}` and `chmod 644`"
            )
        text = stream.read(MOST_BYTES).decode("utf-8", "replace")
    home = text[:-1] if text.endswith("\n") else text
    if not os.path.isabs(home) or not home.isprintable() or os.path.normpath(home) != home:
        raise TrustError(f"{SIGNED_MODE_FILE}: got {text[:100]!r}; write one line into it, such as {SYSTEM_HOME}")
    return home


def _unreadable(path: str, error: OSError) -> TrustError:
    return TrustError(
        f"{path}: cannot be examined ({error.strerror}), so it is unknown whether this device runs only signed "
        "bundles; let this user enter the folder, or run as its owner"
    )
