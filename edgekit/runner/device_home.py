"""Where a device's releases and its policy lie. Every load asks, so nothing else is imported.

A device is in signed mode where the home in use has a policy, where /var/lib/edge has one, or where the root-owned file
/etc/edge/trust says so. The last two hold whatever `EDGERUN_HOME` and `HOME` name. That file has one line, the absolute
path of the home whose policy holds.

What cannot be looked at is never taken for what is not there, because then whoever may not enter a folder would be free
of the policy in it.
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
"""Folder of the policy in a home."""
MOST_BYTES = 4096
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_home(given: str | None = None) -> str:
    """The folder that was named, else $EDGERUN_HOME, else /var/lib/edge where it exists, else ~/.edge."""
    named = given or os.environ.get(HOME_VARIABLE)
    if not named:
        named = os.path.expanduser("~/.edge")
        if exists(SYSTEM_HOME) or named.startswith("~"):  # the latter where a user has no home folder
            named = SYSTEM_HOME
    return os.path.abspath(named)


def exists(path: str) -> bool:
    """Whether anything has this name, be it a link that leads nowhere; TrustError where that cannot be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error) from None
    return True


def homes_with_policy(home: str) -> list[str]:
    """The homes whose policies a bundle has to pass; none where the device is not in signed mode.

    `home` is the one in use. The device's own policy holds beside that home's, because anybody can name another home.
    TrustError where it cannot be seen whether there is a policy.
    """
    system = _home_in_signed_mode_file() or (SYSTEM_HOME if exists(os.path.join(SYSTEM_HOME, POLICY_FOLDER)) else None)
    homes = [system] if system else []
    if home != system and exists(os.path.join(home, POLICY_FOLDER)):
        homes.append(home)
    return homes


def trusted_owners(home: str) -> set[int]:
    """Users whose files in a home are believed: root, this one, and the owner of a home that root has chosen."""
    found = {0}  # Windows says so of every file
    if sys.platform != "win32":
        found.add(os.geteuid())
    if home in (SYSTEM_HOME, _home_in_signed_mode_file()):
        found.add(os.lstat(home).st_uid)
    return found


def _home_in_signed_mode_file() -> str | None:
    """The home that /etc/edge/trust names; None without such a file, TrustError where others than root can write it."""
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
                f"{SIGNED_MODE_FILE}: belongs to user {facts.st_uid} with mode {facts.st_mode & 0o777:o}; it has to be "
                "a file of root's that nobody else can write: look inside, then "
                f"`chown root {SIGNED_MODE_FILE}` and `chmod 644`"
            )
        text = stream.read(MOST_BYTES).decode("utf-8", "replace")
    home = text[:-1] if text.endswith("\n") else text
    if not os.path.isabs(home) or not home.isprintable() or os.path.normpath(home) != home:
        raise TrustError(f"{SIGNED_MODE_FILE}: got {text[:100]!r}; write one line into it, such as {SYSTEM_HOME}")
    return home


def _unreadable(path: str, error: OSError) -> TrustError:
    return TrustError(
        f"{path}: cannot be looked at ({error.strerror}), so nobody knows whether this device runs signed bundles "
        "alone; let this user enter the folder, or run as its owner"
    )
