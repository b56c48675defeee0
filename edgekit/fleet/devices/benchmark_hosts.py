"""The devices that a run lets decide: those of a class, in the file that the config names."""

from __future__ import annotations

from edgekit.core.config import suggest
from edgekit.core.errors import ConfigError
from edgekit.data.paths import expand
from edgekit.fleet.devices import inventory
from edgekit.fleet.devices.connection import require_asyncssh
from edgekit.fleet.devices.inventory import Host


def hosts_of_class(hosts: str, where: str) -> tuple[Host, ...]:
    """Those of the class `where`; ConfigError where there is none, or the extra `fleet` is not installed."""
    require_asyncssh()
    found = inventory.read_inventory(expand(hosts, "benchmark.hosts"))
    named = found.of_class(where)
    if not named:
        classes = sorted({host.device_class for host in found.hosts})
        raise ConfigError(
            f"benchmark.where: {where!r}: {found.path} has no host of that class, {suggest(where, classes)}"
        )
    return named
