"""A device takes over a policy: the first one with its root key, each later one only where that root has signed it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from edgekit.device import trust
from edgekit.device.trust import policy, policy_history
from edgekit.device.trust.policy import Policy
from edgekit.runner import device_home
from edgekit.runner.errors import TrustError
from edgekit.runner.files import make_folder, sync_folder, write_atomically


def adopt_policy(source: Path, device: Path, clock: float | None = None) -> Policy:
    """Copy the policy of the folder `source` to the folder `device`; the same one again changes nothing.

    A folder that is not there yet is made, and trusts the root key of `source` from then on. The caller holds the lock.
    TrustError for an older, expired or foreign policy, and then nothing is changed.
    """
    is_new = not device_home.exists(str(device))
    if not is_new:
        policy.check_private(device)
    data, armour = policy.read_files(source)
    root = policy.root_key(source if is_new else device)
    rules = policy.verify_policy(data, armour, root)
    seen = policy_history.SeenPolicy() if is_new else policy_history.read_history(device)
    policy_history.check_version(rules, seen)
    now_s = max(time.time() if clock is None else clock, seen.time_s, rules.time_s)
    trust.check_unexpired("policy.json", rules.expires_s, now_s, "bring a newer policy")
    if not is_new:
        policy.write_policy(device, data, armour)
        policy_history.update_history(device, rules, rules.time_s)
        return rules
    make_folder(device.parent)
    made = device.with_name(f".{device.name}.{os.getpid()}.tmp")
    made.mkdir(0o755)  # it holds no secret, and every user who loads a bundle has to read it
    try:
        write_atomically(made / policy.ROOT, f"{root}\n".encode(), policy.MODE)
        policy.write_policy(made, data, armour)
        policy_history.update_history(made, rules, rules.time_s)
        os.rename(made, device)  # the folder is there when it is whole: an empty one would let nothing load
    except BaseException as error:
        for path in made.iterdir():
            path.unlink()
        made.rmdir()
        if isinstance(error, OSError) and device_home.exists(str(device)):
            raise TrustError(f"{device}: another policy was adopted meanwhile; look at it, then try again") from None
        raise
    with suppress(OSError):
        sync_folder(device.parent)
    return rules
