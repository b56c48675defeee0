"""Adopt a policy: the first one with its root key, each later one only if that root has signed it."""

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
    """Copy the policy of the folder `source` to the folder `device`. Adopting the same policy again changes nothing.

    If `device` does not exist yet, it is created, and trusts the root key of `source` from then on. The caller holds
    the lock. Raises TrustError if the policy is older than the present one, has expired or is not signed by the root;
    nothing is changed then.
    """
    is_new = not device_home.exists(str(device))
    if not is_new:
        policy.check_private(device)
    data, armour = policy.read_files(source)
    root = policy.root_key(source if is_new else device)
    adopted = policy.verify_policy(data, armour, root)
    history = policy_history.SeenPolicy() if is_new else policy_history.read_history(device)
    policy_history.check_version(adopted, history)
    now_s = max(time.time() if clock is None else clock, history.time_s, adopted.time_s)
    trust.check_unexpired("policy.json", adopted.expires_s, now_s, "bring a newer policy")
    if not is_new:
        policy.write_policy(device, data, armour)
        policy_history.update_history(device, adopted, adopted.time_s)
        return adopted
    make_folder(device.parent)
    temporary = device.with_name(f".{device.name}.{os.getpid()}.tmp")
    temporary.mkdir(0o755)  # it holds no secret, and every user who loads a bundle has to read it
    try:
        write_atomically(temporary / policy.ROOT, f"{root}\n".encode(), policy.MODE)
        policy.write_policy(temporary, data, armour)
        policy_history.update_history(temporary, adopted, adopted.time_s)
        os.rename(temporary, device)  # complete at once: without a policy in the folder, nothing would load
    except BaseException as error:
        for path in temporary.iterdir():
            path.unlink()
        temporary.rmdir()
        if isinstance(error, OSError) and device_home.exists(str(device)):
            raise TrustError(f"{device}: another policy was adopted meanwhile; check it, then try again") from None
        raise
    with suppress(OSError):
        sync_folder(device.parent)
    return adopted
