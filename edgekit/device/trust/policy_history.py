"""What a device has seen: the highest version of the policy, and the newest time in a trusted file.

The values in `seen.json`, in the folder of the policy, only ever increase, so neither an older policy nor a clock that
was set back helps an attacker. The file is written by commands, and also whenever a bundle is loaded, which does not
take the commands' lock. Writing it therefore has a lock of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from edgekit.device.trust.policy import MODE, SEEN, Policy
from edgekit.device.trust.signed_json import (
    format_time,
    parse_count,
    parse_object,
    parse_time,
    read_small,
    require_keys,
)
from edgekit.runner.device_home import exists
from edgekit.runner.errors import TrustError
from edgekit.runner.files import BINARY, sync_folder

NEXT = ".seen.json.next"
LARGEST = 1024
FIX = "put the newest policy there, then remove this file"


class SeenPolicy(NamedTuple):
    """Version and digest of the newest policy, and a time in seconds since 1970."""

    version: int = 0
    sha256: str = ""
    time_s: float = 0.0


def read_history(folder: Path) -> SeenPolicy:
    """Return what was seen; empty if the file does not exist. Raises TrustError for a damaged one."""
    path = folder / SEEN
    if not exists(str(path)):
        return SeenPolicy()
    values = parse_object(read_small(path, LARGEST, FIX), str(path))
    require_keys(values, {"version", "sha256", "time"}, f"{path}: {FIX}")
    return SeenPolicy(
        parse_count(values["version"], 0, str(path)),
        str(values["sha256"]),
        parse_time(values["time"], f"{path}: time; {FIX}"),
    )


def check_version(policy: Policy, seen: SeenPolicy) -> None:
    """Raise TrustError for a policy older than one that was seen, or for a different policy of the same version."""
    if policy.version < seen.version:
        raise TrustError(
            f"policy.json: has version {policy.version}, but this device has already seen version "
            f"{seen.version}; install the newest policy"
        )
    if policy.version == seen.version and policy.sha256 != seen.sha256:
        raise TrustError(
            f"policy.json: differs from the version {policy.version} that this device has already seen; "
            f"change the newest policy and install that"
        )


def update_history(folder: Path, policy: Policy, time_s: float) -> None:
    """Record the policy and the time if they are newer than the recorded ones. Raises OSError if that is impossible."""
    if sys.platform == "win32" or _newer(read_history(folder), policy, time_s) is None:
        return  # on Windows, `check_private` has refused the folder
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        newer = _newer(read_history(folder), policy, time_s)
        if newer is not None:
            values = {"version": newer.version, "sha256": newer.sha256, "time": format_time(newer.time_s)}
            # Other commands do not take this name for the leftover of a killed command, and so do not remove the file.
            with open(os.open(folder / NEXT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, MODE), "wb") as stream:
                stream.write((json.dumps(values, sort_keys=True) + "\n").encode())
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(folder / NEXT, folder / SEEN)
            sync_folder(folder)
    finally:
        os.close(handle)


def _newer(seen: SeenPolicy, policy: Policy, time_s: float) -> SeenPolicy | None:
    """Return what to record, or None if nothing is new.

    `policy` may be older than the recorded one, because a newer policy may have been seen since it was read.
    """
    newest = (policy.version, policy.sha256) if policy.version > seen.version else (seen.version, seen.sha256)
    updated = SeenPolicy(*newest, max(seen.time_s, policy.time_s, time_s))
    return None if updated == seen else updated
