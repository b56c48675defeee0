"""What is known of a fleet between two commands: a file beside hosts.yaml, and one command at a time.

It is a note and no truth. Where it is missing or damaged, devices are asked again, and nothing is done twice there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.cli.fleet.outcomes import ARRIVED, CONFIRMED, SENT, WAITING, Outcome
from edgekit.core import lock
from edgekit.core.hashing import write_json
from edgekit.measure.devices.inventory import Host, Inventory
from edgekit.runner.files import make_folder

FOLDER = ".edgekit/fleet"
FORMAT = 1
EVERY_S = 0.5
"""So often it is written at most: 500 devices change their states thousands of times."""
LARGEST_BYTES = 64 << 20


class Journal:
    """By host: which parcel it has, where it was, and how far it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hosts = _read(path)
        self._written = 0.0
        self._changed = False

    def state(self, host: Host, key: str) -> str:
        """How far this device is with the parcel, for all that is known: waiting, sent or confirmed."""
        found = self._hosts.get(host.name, {})
        if (found.get("identity"), found.get("key")) != (host.identity, key):
            return WAITING
        state = found.get("state")
        return CONFIRMED if state == CONFIRMED else SENT if state in ARRIVED else WAITING

    def release(self, host: Host) -> int | None:
        """The release that it had when it confirmed that."""
        found = self._hosts.get(host.name, {}).get("release")
        return found if isinstance(found, int) else None

    def note(self, outcome: Outcome, key: str) -> None:
        """How far a device is by now."""
        facts = {"state": outcome.state, "release": outcome.release, "why": outcome.why}
        self._hosts[outcome.host.name] = {
            "identity": outcome.host.identity,
            "key": key,
            **facts,
            "at": int(time.time()),
        }
        self._changed = True
        if time.monotonic() - self._written >= EVERY_S:
            self.write()

    def forget(self, host: Host) -> None:
        """Nothing is known of a device any more."""
        self._changed = self._hosts.pop(host.name, None) is not None or self._changed

    def write(self) -> None:
        """What was noted since the last time."""
        if self._changed:
            write_json(self._path, {"format": FORMAT, "hosts": self._hosts})
            self._written, self._changed = time.monotonic(), False


@contextmanager
def opened(inventory: Inventory, who: str) -> Iterator[Journal]:
    """That of an inventory, written at the end; ResourceError where another command is at work on the same fleet."""
    folder = inventory.path.resolve().parent / FOLDER
    make_folder(folder)
    with lock.hold(folder / f"{inventory.path.name}.lock", who):
        journal = Journal(folder / f"{inventory.path.name}.json")
        try:
            yield journal
        finally:
            journal.write()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    hosts = found.get("hosts") if isinstance(found, dict) and found.get("format") == FORMAT else None
    return {name: each for name, each in hosts.items() if isinstance(each, dict)} if isinstance(hosts, dict) else {}
