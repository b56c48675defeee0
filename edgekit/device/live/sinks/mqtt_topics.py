"""The topics that the MQTT sink publishes to. A subscription to PREFIX/+/+ receives the events and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

RESERVED = re.compile(r"[+#/\x00-\x1f]|^\$")
"""Characters that have a meaning in MQTT, or that brokers refuse."""


@dataclass(frozen=True)
class Topics:
    """Topics of one device below a prefix."""

    prefix: str
    device_id: str

    def event(self, source: str, rule: str) -> str:
        """Each event of a rule."""
        return f"{self.prefix}/{level(source)}/{level(rule)}"

    @property
    def availability(self) -> str:
        """`online` or `offline`, retained."""
        return self._own("availability")

    @property
    def echo(self) -> str:
        """A question of the device to itself."""
        return self._own("echo")

    def state(self, source: str, rule: str) -> str:
        """`ON`, `OFF` or a count, retained, for Home Assistant."""
        return self._own(f"state/{level(source)}/{level(rule)}")

    def picture(self, source: str) -> str:
        """The JPEG file of the last event, retained, for Home Assistant."""
        return self._own(f"picture/{level(source)}")

    def _own(self, name: str) -> str:
        return f"{self.prefix}/device/{level(self.device_id)}/{name}"


def level(name: str) -> str:
    """Return a name as one level of a topic."""
    return RESERVED.sub("_", name) or "_"
