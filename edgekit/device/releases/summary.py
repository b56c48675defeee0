"""The state of a device's releases, as text and as JSON."""

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
    """Repair what a killed command has left, if this user may write to the home, and print the state."""
    try:
        if home.exists() and home.is_mine():
            change_and_print(home, as_json, lambda home: None)
            return
    except OSError as error:
        if error.errno not in READ_ONLY_ERRORS:
            raise
    _print(home, as_json)


def change_and_print(home: Home, as_json: bool, step: Callable[[Home], object]) -> None:
    """Make one change under the lock, and print the state after it."""
    with home.locked():
        transitions.recover(home)
        step(home)
        _print(home, as_json)


def _print(home: Home, as_json: bool) -> None:
    state = summary(home)
    print(json.dumps(state, sort_keys=True) if as_json else "\n".join(summary_lines(state)))


def summary(home: Home) -> dict[str, Any]:
    """Return the state for JSON. `refused` says why the current release cannot be loaded.

    The caller holds the lock, if the home exists and this user may write to it.
    """
    current, probation, refusal = (
        records.current_number(home),
        records.read_probation(home),
        current_release.refusal_reason(home),
    )
    policies = [os.path.join(each, device_home.POLICY_FOLDER) for each in device_home.homes_with_policy(str(home.root))]
    releases = [_release(home, number) for number in records.release_numbers(home)]
    return {
        "home": str(home.root),
        "state": "none" if current is None else "trial" if probation else "confirmed",
        **({"refused": refusal} if refusal else {}),
        "current": current,
        "back": None if current is None else records.previous_release(home, current),
        "tries": probation.tries if probation else None,
        "outages": probation.outages if probation else None,
        "signed": bool(policies),
        "policies": policies,
        "floor": records.version_floors(home),
        "releases": releases,
        "store": sorted(path.name for path, _ in incoming_files.regular_files(home.store)),
        "incoming": incoming_files.received_bytes(home),
    }


def _release(home: Home, number: int) -> dict[str, Any]:
    folder = home.release(number)
    validation, failed = records.read_record(folder / records.PROOF), records.read_record(folder / records.FAILED)
    state = "built"
    for name in (records.PROOF, records.CONFIRMED, records.FAILED):
        state = name.partition(".")[0] if (folder / name).exists() else state
    return {
        "release": number,
        "sha256": records.bundle_digest(home, number),
        "state": {"proof": "proven"}.get(state, state),
        "files": sorted(records.installed_files(home, number).values()),
        "why": str(failed.get("why", "")),
        **{key: validation.get(key) for key in ("name", "version", "target", "p50_ms", "limit_ms")},
    }


def summary_lines(state: dict[str, Any]) -> list[str]:
    """Return the state as text. Control characters from untrusted files are replaced."""
    names = {each["release"]: f"{each['name']} {each['version']} {each['target']}" for each in state["releases"]}
    if state["current"] is None:
        lines = [f"no release in {state['home']}"]
    else:
        tries = f", tries left: {state['tries']}" if state["state"] == "trial" else ""
        number, name = state["current"], names[state["current"]]
        lines = [f"release {number} ({name}): {'on probation' if tries else 'confirmed'}{tries}"]
    if "refused" in state:
        lines.append(f"refused, so it is not loaded: {state['refused']}")
    if state["back"] is not None:
        lines.append(f"a rollback returns to release {state['back']} ({names[state['back']]})")
    if state["signed"]:
        lines.append(
            f"signed mode: bundles that the policy in {', '.join(state['policies'])} does not trust are refused"
        )
    lines += [f"release {each['release']} failed: {each['why']}" for each in state["releases"] if each["why"]]
    lines += [f"{sha256}: {size:,} bytes have arrived" for sha256, size in state["incoming"].items()]
    return ["".join(each if each.isprintable() else " " for each in line) for line in lines]
