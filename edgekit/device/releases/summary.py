"""Everything that a device says of its releases, for people and for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from edgekit.device.releases import current_release, incoming_files, records, transitions
from edgekit.device.releases.home import Home
from edgekit.runner import device_home
from edgekit.runner.files import READ_ONLY_ERRORS


def print_summary(home: Home, as_json: bool) -> None:
    """Print what there is, on the disk as it was put right; as it lies there where this user can write nothing."""
    try:
        if home.exists() and home.is_mine():
            change_and_print(home, as_json, lambda home: None)
            return
    except OSError as error:
        if error.errno not in READ_ONLY_ERRORS:
            raise
    _print(home, as_json)


def change_and_print(home: Home, as_json: bool, step: Callable[[Home], object]) -> None:
    """Do one step under the lock, and print what there is then."""
    with home.locked():
        transitions.recover(home)
        step(home)
        _print(home, as_json)


def _print(home: Home, as_json: bool) -> None:
    found = summary(home)
    print(json.dumps(found, sort_keys=True) if as_json else "\n".join(summary_lines(found)))


def summary(home: Home) -> dict[str, Any]:
    """For JSON. Asks for the lock where the home is there. `refused` says why nothing loads the current release."""
    now, running, refused = (
        records.current_number(home),
        records.read_probation(home),
        current_release.refusal_reason(home),
    )
    policies = [os.path.join(each, device_home.POLICY_FOLDER) for each in device_home.homes_with_policy(str(home.root))]
    releases = [_release(home, number) for number in records.release_numbers(home)]
    return {
        "home": str(home.root),
        "state": "none" if now is None else "trial" if running else "confirmed",
        **({"refused": refused} if refused else {}),
        "current": now,
        "back": None if now is None else records.previous_release(home, now),
        "tries": running.tries if running else None,
        "outages": running.outages if running else None,
        "signed": bool(policies),
        "policies": policies,
        "floor": records.version_floors(home),
        "releases": releases,
        "store": sorted(path.name for path, _ in incoming_files.regular_files(home.store)),
        "incoming": incoming_files.received_bytes(home),
    }


def _release(home: Home, number: int) -> dict[str, Any]:
    folder = home.release(number)
    proof, failed = records.read_record(folder / records.PROOF), records.read_record(folder / records.FAILED)
    state = "built"
    for name in (records.PROOF, records.CONFIRMED, records.FAILED):
        state = name.partition(".")[0] if (folder / name).exists() else state
    return {
        "release": number,
        "sha256": records.bundle_digest(home, number),
        "state": {"proof": "proven"}.get(state, state),
        "files": sorted(records.installed_files(home, number).values()),
        "why": str(failed.get("why", "")),
        **{key: proof.get(key) for key in ("name", "version", "target", "p50_ms", "limit_ms")},
    }


def summary_lines(found: dict[str, Any]) -> list[str]:
    """The same for people: what others wrote orders no terminal about."""
    names = {each["release"]: f"{each['name']} {each['version']} {each['target']}" for each in found["releases"]}
    if found["current"] is None:
        told = [f"no release in {found['home']}"]
    else:
        tries = f", tries left: {found['tries']}" if found["state"] == "trial" else ""
        number, name = found["current"], names[found["current"]]
        told = [f"release {number} ({name}): {'on trial' if tries else 'confirmed'}{tries}"]
    if "refused" in found:
        told.append(f"refused, so nothing loads it: {found['refused']}")
    if found["back"] is not None:
        told.append(f"goes back to release {found['back']} ({names[found['back']]})")
    if found["signed"]:
        told.append(f"signed mode: what the policy in {', '.join(found['policies'])} does not trust is refused")
    told += [f"release {each['release']} failed: {each['why']}" for each in found["releases"] if each["why"]]
    told += [f"{sha256}: {size:,} bytes have arrived" for sha256, size in found["incoming"].items()]
    return ["".join(each if each.isprintable() else " " for each in line) for line in told]
