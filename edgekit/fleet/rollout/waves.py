"""Which devices are installed on next: some of each class, then a share of it, then all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from edgekit.fleet.devices.inventory import Host


def next_wave(members: Sequence[Host], ready: Collection[str], proven: int, canary: int, share: float) -> list[Host]:
    """Return the next wave among the `members` of one class that are `ready`, in the order of the inventory.

    First enough that `canary` devices have it, then enough that it is a `share` of the class, then the rest: a device
    of one class proves nothing for another. `proven` devices have it already.
    """
    waiting = [host for host in members if host.name in ready]
    for most in (canary, math.ceil(share * len(members))):
        if proven < most:
            return waiting[: most - proven]
    return waiting
