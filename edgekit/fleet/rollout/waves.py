"""The waves of a rollout: a few devices of each class, then a share of the class, then the rest."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from edgekit.fleet.devices.inventory import Host


def next_wave(members: Sequence[Host], ready: Collection[str], installed: int, canary: int, share: float) -> list[Host]:
    """Return the next wave among the `members` of one class that are `ready`, in the order of the inventory.

    The first wave brings the number of devices with the bundle to `canary`, the second one to a `share` of the class,
    and the last one is the rest. Classes are independent, because success on one class says nothing about another.
    `installed` is the number of devices that have the bundle already.
    """
    waiting = [host for host in members if host.name in ready]
    for required in (canary, math.ceil(share * len(members))):
        if installed < required:
            return waiting[: required - installed]
    return waiting
