"""Which devices are installed on first: some of each class, then a share of it, then all."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from edgekit.measure.devices.inventory import Host


def plan(
    hosts: Sequence[Host], ready: Collection[str], done: Collection[str], canary: int, share: float
) -> list[list[Host]]:
    """Waves of those that are `ready`, each in the order of the inventory.

    Of every class `canary` devices come first, then so many that it is a `share` of the class, then the rest: a device
    of one class proves nothing for another. Those that are `done` have proven as much, and count.
    """
    waves: list[list[Host]] = [[], [], []]
    for device_class in dict.fromkeys(host.device_class for host in hosts):
        members = [host for host in hosts if host.device_class == device_class]
        proven = sum(host.name in done for host in members)
        waiting = [host for host in members if host.name in ready]
        first = min(len(waiting), max(0, canary - proven))
        most = max(math.ceil(share * len(members)) - proven, first)
        for wave, some in zip(waves, (waiting[:first], waiting[first:most], waiting[most:]), strict=True):
            wave += some
    order = {host.name: place for place, host in enumerate(hosts)}
    return [sorted(wave, key=lambda host: order[host.name]) for wave in waves if wave]
