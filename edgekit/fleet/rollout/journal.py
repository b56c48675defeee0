"""The journal: the last known state of each device, in a file beside hosts.yaml, with a lock for one command at a time.

Every command queries the devices themselves. The journal is used only for devices that cannot be reached, so if it
cannot be written, the command continues without it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.core import lock
from edgekit.core.hashing import write_json
from edgekit.fleet.devices.inventory import Host, Inventory
from edgekit.fleet.rollout.outcomes import ARRIVED, CONFIRMED, SENDING, SENT, UNREACHABLE, WAITING, Outcome
from edgekit.runner.errors import bounded_recursion

FOLDER = ".edgekit/fleet"
FORMAT = 1
EVERY_S = 0.5
"""The shortest time between two writes, because the states of 500 devices change thousands of times."""
LARGEST_BYTES = 64 << 20
ADVICE = "that folder is needed beside hosts.yaml: repair it, or copy hosts.yaml into a folder of yours"


class Journal:
    """Holds, for each host, the payload that it has, its address and its state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hosts = _read(path)
        self._written = 0.0
        self._changed = self._warned = False

    def state(self, host: Host, key: str) -> str:
        """Return the last known state of a device with this payload: waiting, sent or confirmed."""
        entry = self._hosts.get(host.name, {})
        if (entry.get("identity"), entry.get("key")) != (host.identity, key):
            return WAITING
        state = entry.get("state")
        return CONFIRMED if state == CONFIRMED else SENT if state in ARRIVED else WAITING

    def known(self, host: Host, key: str) -> str:
        """Return the last known state as text, with the release number; empty if nothing is known."""
        state, release = self.state(host, key), self._hosts.get(host.name, {}).get("release")
        if state == WAITING:
            return ""
        suffix = f" as release {release}" if state == CONFIRMED and isinstance(release, int) else ""
        confirmed = f"it had confirmed the bundle{suffix} before"
        return confirmed if state == CONFIRMED else "the bundle was sent there before"

    def note(self, outcome: Outcome, key: str) -> None:
        """Record the state of a device. While it is unreachable or files are being sent, an earlier state is kept."""
        if outcome.state in (SENDING, UNREACHABLE) and self.state(outcome.host, key) != WAITING:
            return
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
        """Remove what is known of a device."""
        self._changed = self._hosts.pop(host.name, None) is not None or self._changed

    def write(self) -> None:
        """Write new notes to the file. If that is not possible, warn once."""
        if not self._changed:
            return
        try:
            write_json(self._path, {"format": FORMAT, "hosts": self._hosts})
        except OSError as error:
            if not self._warned:
                print(
                    f"edgekit: {self._path}: cannot be written ({error.strerror}); continuing without it",
                    file=sys.stderr,
                )
            self._warned = True
        else:
            self._changed = False
        self._written = time.monotonic()


@contextmanager
def open_journal(inventory: Inventory, who: str) -> Iterator[Journal]:
    """Open the journal of an inventory, and write it at the end.

    Raises ResourceError if another command uses the same fleet.
    """
    folder = inventory.path.resolve().parent / FOLDER
    with lock.hold(folder / f"{inventory.path.name}.lock", who, advice=ADVICE):
        journal = Journal(folder / f"{inventory.path.name}.json")
        try:
            yield journal
        finally:
            journal.write()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return {}
        with bounded_recursion():
            content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    hosts = content.get("hosts") if isinstance(content, dict) and content.get("format") == FORMAT else None
    return {name: each for name, each in hosts.items() if isinstance(each, dict)} if isinstance(hosts, dict) else {}
