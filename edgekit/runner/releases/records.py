"""What a home's files say: its releases, which is current, and whether that is on trial. Reads alone, at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.runner.files import write_atomically
from edgekit.runner.releases.home import Home

BUNDLE, INSTALL, PROOF = "bundle.edge.zip", "install.json", "proof.json"
CONFIRMED, FAILED = "confirmed.json", "failed.json"
TRIES = 3


class Trial(NamedTuple):
    """`origin` is the release to go back to; None: there was none before.

    `running`: a try was begun and nothing was heard of its end. `boot` is the kernel's id of the time since it started.
    `outages` counts the tries that were given back because the machine went down.
    """

    release: int
    origin: int | None
    tries: int
    boot: str = ""
    running: bool = False
    outages: int = 0


def numbers(home: Home) -> list[int]:
    """Of all releases, rising."""
    try:
        return sorted(int(name) for name in os.listdir(home.releases) if name.isdecimal())
    except FileNotFoundError:
        return []


def current(home: Home) -> int | None:
    """The release that `current` points to; None where it points to none that is there."""
    try:
        folder, _, name = os.readlink(home.current).rpartition("/")
    except OSError:
        return None
    return int(name) if folder == "releases" and name.isdecimal() and home.release(int(name)).is_dir() else None


def read(path: Path) -> dict[str, Any]:
    """A record; empty where there is none, or none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, record: dict[str, Any]) -> None:
    """One rename."""
    write_atomically(path, (json.dumps(record, sort_keys=True) + "\n").encode())


def trial(home: Home) -> Trial | None:
    """None: `current` is confirmed. A damaged file says nothing but that the release is on its last try."""
    if not home.trial.exists():
        return None
    record = read(home.trial)
    try:
        fields: dict[str, Any] = {name: record.get("from" if name == "origin" else name) for name in Trial._fields}
        return Trial(**{**fields, "release": int(record["release"]), "tries": int(record["tries"])})
    except (KeyError, TypeError, ValueError):
        return Trial(current(home) or 0, newest_confirmed(home), 1)


def write_trial(home: Home, trial: Trial) -> None:
    """One rename."""
    facts = trial._asdict()
    write(home.trial, {"from": facts.pop("origin"), **facts})


def is_confirmed(home: Home, number: int) -> bool:
    """Whether it was confirmed at some time."""
    return (home.release(number) / CONFIRMED).exists()


def has_failed(home: Home, number: int) -> bool:
    """Whether it was taken back, or never came so far."""
    return (home.release(number) / FAILED).exists()


def newest_confirmed(home: Home, without: int | None = None) -> int | None:
    """The newest release that was confirmed and not taken back."""
    good = [each for each in numbers(home) if is_confirmed(home, each) and not has_failed(home, each)]
    return next((each for each in reversed(good) if each != without), None)


def before(home: Home, number: int) -> int | None:
    """The release that a current one goes back to; None where there is none, or it has been removed."""
    running = trial(home)
    on_trial = running is not None and running.release == number
    origin = running.origin if running and on_trial else read(home.release(number) / CONFIRMED).get("from")
    if isinstance(origin, int) and home.release(origin).is_dir():
        return origin
    return newest_confirmed(home, without=number) if on_trial else None


def digest(home: Home, number: int) -> str:
    """Sha256 of a release's bundle, as it was installed."""
    return str(read(home.release(number) / INSTALL).get("sha256", ""))


def floors(home: Home) -> dict[str, dict[str, int]]:
    """By name the highest epoch and counter that were confirmed."""
    return read(home.floor)
