"""The devices that a run is benchmarked on: those of a class, in the file that the config names."""

from __future__ import annotations

from edgekit.core.config import suggest
from edgekit.core.errors import ConfigError
from edgekit.core.paths import expand_path
from edgekit.fleet.devices import inventory
from edgekit.fleet.devices.connection import require_asyncssh
from edgekit.fleet.devices.inventory import Host


def hosts_of_class(hosts: str, where: str) -> tuple[Host, ...]:
    """Return the hosts of the class `where`.

    Raises ConfigError if there are none or the extra `fleet` is not installed.
    """
    require_asyncssh()
    fleet = inventory.read_inventory(expand_path(hosts, "benchmark.hosts"))
    members = fleet.of_class(where)
    if not members:
        classes = sorted({host.device_class for host in fleet.hosts})
        raise ConfigError(
            f"benchmark.where: {where!r}: {fleet.path} has no host of that class, {suggest(where, classes)}"
        )
    return members
