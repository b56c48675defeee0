"""What a home's files say: its releases, which is current, and whether that is on trial. Reads alone, at any time."""

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
"""In install.json: those that were known when `gc` removed other releases."""
OLDER = "older"
"""In install.json: files that were here before it, by when they were last written."""
VERSION = ("epoch", "counter")
TRIES = 3
COUNT_LIMIT = 2**53


class Probation(NamedTuple):
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


def release_numbers(home: Home) -> list[int]:
    """Of all releases, rising."""
    try:
        return sorted(int(name) for name in os.listdir(home.releases) if name.isdecimal() and str(int(name)) == name)
    except FileNotFoundError:
        return []


def current_number(home: Home) -> int | None:
    """The release that `current` points to; None where it points to none that is there."""
    try:
        folder, _, name = os.readlink(home.current).rpartition("/")
    except OSError:
        return None
    return int(name) if folder == "releases" and name.isdecimal() and home.release(int(name)).is_dir() else None


def read_record(path: Path) -> dict[str, Any]:
    """A record; empty where there is none, or none that can be read."""
    try:
        with bounded_recursion():
            found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def as_count(value: Any) -> int | None:
    """A value of a record that can be a number or a count; None for any other."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT else None


def write_record(path: Path, record: dict[str, Any]) -> None:
    """One rename."""
    write_atomically(path, (json.dumps(record, sort_keys=True) + "\n").encode(), 0o644)


def read_probation(home: Home) -> Probation | None:
    """None: `current` is confirmed. A damaged file says nothing but that the release is on its last try."""
    if not home.trial.exists():
        return None
    record = read_record(home.trial)
    release, origin, tries, outages = (as_count(record.get(name)) for name in ("release", "from", "tries", "outages"))
    if release is None or tries is None:
        return Probation(current_number(home) or 0, newest_confirmed(home), 1)
    return Probation(release, origin, tries, str(record.get("boot")), record.get("running") is True, outages or 0)


def write_probation(home: Home, trial: Probation) -> None:
    """One rename."""
    facts = trial._asdict()
    write_record(home.trial, {"from": facts.pop("origin"), **facts})


def is_confirmed(home: Home, number: int) -> bool:
    """Whether it was confirmed at some time."""
    return (home.release(number) / CONFIRMED).exists()


def has_failed(home: Home, number: int) -> bool:
    """Whether it was taken back, or never came so far."""
    return (home.release(number) / FAILED).exists()


def confirmed_releases(home: Home) -> list[int]:
    """The releases that were confirmed and not taken back, the newest first."""
    return [each for each in reversed(release_numbers(home)) if is_confirmed(home, each) and not has_failed(home, each)]


def newest_confirmed(home: Home, without: int | None = None) -> int | None:
    """The first of them, or the next."""
    return next((each for each in confirmed_releases(home) if each != without), None)


def previous_release(home: Home, number: int) -> int | None:
    """The release that a current one goes back to; None where there is none, or it has been removed."""
    running = read_probation(home)
    on_trial = running is not None and running.release == number
    origin = (
        running.origin if running and on_trial else as_count(read_record(home.release(number) / CONFIRMED).get("from"))
    )
    if origin is not None and home.release(origin).is_dir():
        return origin
    return newest_confirmed(home, without=number) if on_trial else None


def was_first(home: Home, number: int) -> bool:
    """Whether a confirmed release was the first, so that nothing ran here before."""
    found = read_record(home.release(number) / CONFIRMED)
    return bool(found) and found.get("from") is None


def bundle_digest(home: Home, number: int) -> str:
    """Sha256 of a release's bundle, as it was installed."""
    return str(read_record(home.release(number) / INSTALL).get("sha256", ""))


def installed_files(home: Home, number: int) -> dict[str, str]:
    """By name in its folder, the digest of each file that a release was installed with."""
    found = read_record(home.release(number) / INSTALL).get("files")
    return {name: str(sha256) for name, sha256 in found.items()} if isinstance(found, dict) else {}


def trust_record(home: Home, number: int) -> dict[str, Any] | None:
    """What the policy said of a release when it was installed; None where it said nothing."""
    found = read_record(home.release(number) / INSTALL).get("trusted")
    return found if isinstance(found, dict) and _floors({found.get("name"): found}) else None


def version_floors(home: Home) -> dict[str, dict[str, int]]:
    """By name the highest epoch and counter that were confirmed, as floor.json and all releases have it."""
    told = [_floors(read_record(home.floor))]
    for number in release_numbers(home):
        told.append(_floors(read_record(home.release(number) / INSTALL).get(FLOORS)))
        facts = trust_record(home, number) if is_confirmed(home, number) else None
        told += [_floors({facts["name"]: facts})] if facts else []
    found: dict[str, dict[str, int]] = {}
    for name, floor in (pair for each in told for pair in each.items()):
        found[name] = max(floor, found.get(name, floor), key=lambda each: (each["epoch"], each["counter"]))
    return found


def floors_are_lost(home: Home) -> bool:
    """Whether floor.json is damaged, and a release too that may have been the highest one."""
    record = read_record(home.floor)
    damaged = exists(str(home.floor)) and (not record or _floors(record) != record)
    return damaged and not all(bundle_digest(home, number) for number in release_numbers(home))


def checked_version_floors(home: Home) -> dict[str, dict[str, int]]:
    """The same as `floors`; TrustError where they are lost."""
    if floors_are_lost(home):
        raise TrustError(
            f"{home.floor}: is damaged, and so is a release, so nobody knows the versions that were confirmed here; "
            "remove that file to go by the other releases"
        )
    return version_floors(home)


def _floors(values: Any) -> dict[str, dict[str, int]]:
    """Those of them that are some."""
    if not isinstance(values, dict):
        return {}
    return {
        name: {key: each[key] for key in VERSION}
        for name, each in values.items()
        if isinstance(name, str)
        and isinstance(each, dict)
        and all(as_count(each.get(key)) is not None for key in VERSION)
    }
