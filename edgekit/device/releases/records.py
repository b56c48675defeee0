"""Read a home's files: its releases, which one is current, and whether it is on probation. Needs no lock."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.device.releases.home import Home
from edgekit.runner.device_home import exists
from edgekit.runner.errors import TrustError, bounded_recursion
from edgekit.runner.files import write_atomically

BUNDLE, INSTALL, PROOF = "bundle.edge.zip", "install.json", "proof.json"
CONFIRMED, FAILED = "confirmed.json", "failed.json"
FLOORS = "floors"
"""In install.json: the version floors that were known when `gc` removed other releases.

A version floor is the highest confirmed epoch and counter of a bundle name.
"""
OLDER = "older"
"""In install.json: the modification time of each file that had been received before the release, by path."""
VERSION = ("epoch", "counter")
TRIES = 3
COUNT_LIMIT = 2**53


class Probation(NamedTuple):
    """The probation of a release. `origin` is the release to roll back to, or None if there was none.

    `tries` is the number of attempts left. `boot` is the kernel's boot ID at the last attempt, and `running` means that
    this attempt has not reported its end. `outages` counts attempts that were refunded because the machine went down.
    """

    release: int
    origin: int | None
    tries: int
    boot: str = ""
    running: bool = False
    outages: int = 0


def release_numbers(home: Home) -> list[int]:
    """Return the numbers of all releases in ascending order."""
    try:
        return sorted(int(name) for name in os.listdir(home.releases) if name.isdecimal() and str(int(name)) == name)
    except FileNotFoundError:
        return []


def current_number(home: Home) -> int | None:
    """Return the release that `current` points to, or None if that does not exist."""
    try:
        folder, _, name = os.readlink(home.current).rpartition("/")
    except OSError:
        return None
    return int(name) if folder == "releases" and name.isdecimal() and home.release(int(name)).is_dir() else None


def read_record(path: Path) -> dict[str, Any]:
    """Return a record, or {} if it is missing or cannot be read."""
    try:
        with bounded_recursion():
            record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def as_count(value: Any) -> int | None:
    """Return a value of a record if it can be a release number or a count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT else None


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record with one rename."""
    write_atomically(path, (json.dumps(record, sort_keys=True) + "\n").encode(), 0o644)


def read_probation(home: Home) -> Probation | None:
    """Return the probation, or None if `current` is confirmed.

    If trial.json is damaged, one attempt is assumed to be left.
    """
    if not home.trial.exists():
        return None
    record = read_record(home.trial)
    release, origin, tries, outages = (as_count(record.get(name)) for name in ("release", "from", "tries", "outages"))
    if release is None or tries is None:
        return Probation(current_number(home) or 0, newest_confirmed(home), 1)
    return Probation(release, origin, tries, str(record.get("boot")), record.get("running") is True, outages or 0)


def write_probation(home: Home, probation: Probation) -> None:
    """Write the probation with one rename."""
    facts = probation._asdict()
    write_record(home.trial, {"from": facts.pop("origin"), **facts})


def is_confirmed(home: Home, number: int) -> bool:
    """Whether the release was ever confirmed."""
    return (home.release(number) / CONFIRMED).exists()


def has_failed(home: Home, number: int) -> bool:
    """Whether the release was rolled back, or failed its validation."""
    return (home.release(number) / FAILED).exists()


def confirmed_releases(home: Home) -> list[int]:
    """Return the releases that were confirmed and not rolled back, newest first."""
    return [each for each in reversed(release_numbers(home)) if is_confirmed(home, each) and not has_failed(home, each)]


def newest_confirmed(home: Home, without: int | None = None) -> int | None:
    """Return the newest confirmed release other than `without`."""
    return next((each for each in confirmed_releases(home) if each != without), None)


def previous_release(home: Home, number: int) -> int | None:
    """Return the release to roll back to if `number` is current, or None if there is none or it was removed."""
    probation = read_probation(home)
    is_on_probation = probation is not None and probation.release == number
    origin = (
        probation.origin
        if probation and is_on_probation
        else as_count(read_record(home.release(number) / CONFIRMED).get("from"))
    )
    if origin is not None and home.release(origin).is_dir():
        return origin
    return newest_confirmed(home, without=number) if is_on_probation else None


def was_first(home: Home, number: int) -> bool:
    """Whether a confirmed release was the first on this device."""
    record = read_record(home.release(number) / CONFIRMED)
    return bool(record) and record.get("from") is None


def bundle_digest(home: Home, number: int) -> str:
    """Return the SHA-256 of a release's bundle as it was installed."""
    return str(read_record(home.release(number) / INSTALL).get("sha256", ""))


def installed_files(home: Home, number: int) -> dict[str, str]:
    """Return the digests of the files that a release was installed with, by file name."""
    digests = read_record(home.release(number) / INSTALL).get("files")
    return {name: str(sha256) for name, sha256 in digests.items()} if isinstance(digests, dict) else {}


def trust_record(home: Home, number: int) -> dict[str, Any] | None:
    """Return what the policy said about a release when it was installed, or None."""
    record = read_record(home.release(number) / INSTALL).get("trusted")
    return record if isinstance(record, dict) and _floors({record.get("name"): record}) else None


def version_floors(home: Home) -> dict[str, dict[str, int]]:
    """Return, for each bundle name, the highest confirmed epoch and counter, from floor.json and all releases."""
    sources = [_floors(read_record(home.floor))]
    for number in release_numbers(home):
        sources.append(_floors(read_record(home.release(number) / INSTALL).get(FLOORS)))
        facts = trust_record(home, number) if is_confirmed(home, number) else None
        sources += [_floors({facts["name"]: facts})] if facts else []
    highest: dict[str, dict[str, int]] = {}
    for name, floor in (pair for each in sources for pair in each.items()):
        highest[name] = max(floor, highest.get(name, floor), key=lambda each: (each["epoch"], each["counter"]))
    return highest


def floors_are_lost(home: Home) -> bool:
    """Whether floor.json is damaged and a release's record is too, so that the highest version may be unknown."""
    record = read_record(home.floor)
    is_damaged = exists(str(home.floor)) and (not record or _floors(record) != record)
    return is_damaged and not all(bundle_digest(home, number) for number in release_numbers(home))


def checked_version_floors(home: Home) -> dict[str, dict[str, int]]:
    """Return the version floors. Raises TrustError if they are lost."""
    if floors_are_lost(home):
        raise TrustError(
            f"{home.floor} is damaged, and so is the record of a release, so it is unknown which versions were "
            f"confirmed here; remove {home.floor} to rely on the releases that can still be read"
        )
    return version_floors(home)


def _floors(values: Any) -> dict[str, dict[str, int]]:
    """Return the valid entries."""
    if not isinstance(values, dict):
        return {}
    return {
        name: {key: each[key] for key in VERSION}
        for name, each in values.items()
        if isinstance(name, str)
        and isinstance(each, dict)
        and all(as_count(each.get(key)) is not None for key in VERSION)
    }
