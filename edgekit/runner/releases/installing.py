"""From a file in the store to a release on trial: built aside, admitted, proven here, then turned to."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.runner import errors
from edgekit.runner.errors import ReleaseError, RunnerError, SelftestError, TrustError
from edgekit.runner.files import sync_folder
from edgekit.runner.releases import current, receiving, records, transitions
from edgekit.runner.releases.home import Home
from edgekit.runner.releases.proof import DEFAULT, Limits, Proof

SHA256 = re.compile(r"[0-9a-f]{64}")


class Wanted(NamedTuple):
    """A bundle in the store with its statement and the signatures of that, by their digests."""

    sha256: str
    statement: str | None = None
    signatures: tuple[str, ...] = ()


def from_file(home: Home, path: Path) -> Wanted:
    """Take a bundle off this disk into the store, with the statement and the signatures that lie beside it."""
    statement = path.with_name(current.statement(path.name))
    if not statement.exists():
        return Wanted(_stored(home, path))
    signatures = sorted(path.parent.glob(f"{statement.name}.sig*"))
    return Wanted(_stored(home, path), _stored(home, statement), tuple(_stored(home, each) for each in signatures))


def _stored(home: Home, path: Path) -> str:
    with open(path, "rb") as stream:
        sha256 = receiving.digest(stream.fileno())
        receiving.receive(home, sha256, stream, lambda offset, stored: None, size=path.stat().st_size, resend=True)
    return sha256


def install(
    home: Home,
    wanted: Wanted,
    tries: int = records.TRIES,
    limits: Limits = DEFAULT,
    interpreter: str | None = None,
    on_progress: Callable[[str], object] = lambda line: None,
) -> int:
    """Put a bundle on trial; the release's number. Nothing happens where it is current already.

    Raises
    ------
    ReleaseError
        It is not in the store, or another release is on trial.
    TrustError
        A file has another digest, or the policy does not trust it.
    SelftestError, BackendError, BundleError
        It does not work here; the current release stays.
    """
    with home.locked():
        transitions.recover(home)
        now = records.current(home)
        if now is not None and records.digest(home, now) == wanted.sha256:
            return now
        _check_no_trial(home)
        number = _build(home, wanted)
        handle = os.open(home.release(number), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_SH)  # `gc` leaves it alone
    try:
        on_progress(f"release {number}: proving it on this device")
        report = Proof(home, number, limits, interpreter).wait()  # others may work meanwhile
        with home.locked():
            transitions.recover(home)
            _check_proven(home, number, report)
            _check_no_trial(home)
            transitions.put_on_trial(home, number, tries)
    finally:
        os.close(handle)
    return number


def _check_no_trial(home: Home) -> None:
    running = records.trial(home)
    if running is not None:
        number = running.release
        raise ReleaseError(f"release {number} is on trial; first `edgerun confirm` or `edgerun rollback`")


def _build(home: Home, wanted: Wanted) -> int:
    """A release that is admitted; one that was built before a kill is taken up again."""
    install = _admission(home, wanted)
    for number in reversed(records.numbers(home)):
        again = records.read(home.release(number) / records.INSTALL).get("files") == install["files"]
        if again and not records.has_failed(home, number) and not records.is_confirmed(home, number):
            return _admitted(home, number)
    number = max(records.numbers(home), default=0) + 1
    folder = home.releases / f".{number}.tmp"
    folder.mkdir(mode=0o700)
    for name, sha256 in install["files"].items():
        os.link(home.store / sha256, folder / name)
    records.write(folder / records.INSTALL, install)
    os.replace(folder, home.release(number))
    sync_folder(home.releases)
    return _admitted(home, number)


def _admission(home: Home, wanted: Wanted) -> dict[str, Any]:
    """install.json of what is wanted; every file is there and has its digest."""
    files = {records.BUNDLE: wanted.sha256}
    statement = current.statement(records.BUNDLE)
    if wanted.statement:
        files[statement] = wanted.statement
    for place, sha256 in enumerate(wanted.signatures):
        files[f"{statement}.sig" + (f".{place + 1}" if place else "")] = sha256
    for sha256 in files.values():
        path = home.store / sha256
        if not SHA256.fullmatch(sha256) or not path.is_file():
            raise ReleaseError(f"{sha256}: is not in the store; use `edgerun receive {sha256}` first")
        with open(path, "rb") as stream:
            if receiving.digest(stream.fileno()) != sha256:
                transitions.remove(path)
                raise TrustError(f"{sha256}: its digest is another by now, so it was removed; receive it again")
    return {"sha256": wanted.sha256, "files": files, "at": time.time()}


def _admitted(home: Home, number: int) -> int:
    """Hold a release against the policy, and note what that says of it."""
    try:
        sha256 = records.digest(home, number)
        current.read_checked(str(home.release(number) / records.BUNDLE), sha256)
        trusted = current.check_trust(home, number, records.floors(home), sha256)
    except RunnerError as error:
        transitions.fail(home, number, str(error))
        raise
    path = home.release(number) / records.INSTALL
    record = records.read(path)
    if trusted != record.get("trusted"):
        records.write(path, {**record, "trusted": trusted})
    return number


def _check_proven(home: Home, number: int, report: dict[str, Any]) -> None:
    """Write down how the proof went; the error where it does not work here."""
    folder = home.release(number)
    if not folder.is_dir():
        raise ReleaseError(f"release {number}: was removed meanwhile; install it again")
    records.write(folder / records.PROOF, {**report, "at": time.time()})
    if report["problem"]:
        transitions.fail(home, number, report["problem"])
        kind = getattr(errors, report.get("kind", ""), SelftestError)
        raise kind(f"release {number}: {report['problem']}; it was not installed")
