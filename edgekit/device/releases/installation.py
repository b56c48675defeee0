"""Install a bundle from the store: build a release, check it against the policy, validate it, and make it current."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.device.releases import current_release, incoming_files, records, transitions
from edgekit.device.releases.home import READABLE, Home
from edgekit.device.releases.validation import DEFAULT, ValidationLimits, ValidationProcess
from edgekit.runner import errors
from edgekit.runner.backends import MissingInterpreterError
from edgekit.runner.device_home import homes_with_policy
from edgekit.runner.errors import ReleaseError, SelftestError, TrustError
from edgekit.runner.files import sync_folder

SHA256 = re.compile(r"[0-9a-f]{64}")


class BundleFiles(NamedTuple):
    """The digests of a bundle in the store, its signed statement (see `trust/statement.py`) and the signatures."""

    sha256: str
    statement: str | None = None
    signatures: tuple[str, ...] = ()

    def files(self) -> dict[str, str]:
        """Return the digests by their file names in the release's folder."""
        files, statement = {records.BUNDLE: self.sha256}, current_release.statement_name(records.BUNDLE)
        if self.statement:
            files[statement] = self.statement
        for index, sha256 in enumerate(self.signatures):
            files[f"{statement}.sig" + (f".{index + 1}" if index else "")] = sha256
        return files


def store_bundle(home: Home, path: Path) -> BundleFiles:
    """Copy a bundle from this disk into the store, with the statement and signatures next to it."""
    statement = path.with_name(current_release.statement_name(path.name))
    if not statement.exists():
        return BundleFiles(_store_file(home, path))
    from edgekit.device.trust.statement import signatures_beside

    signatures = signatures_beside(statement)
    return BundleFiles(
        _store_file(home, path), _store_file(home, statement), tuple(_store_file(home, each) for each in signatures)
    )


def _store_file(home: Home, path: Path) -> str:
    with open(path, "rb") as stream:
        sha256 = current_release.file_digest(stream.fileno())
        incoming_files.receive_file(
            home, sha256, stream, lambda offset, stored: None, size=path.stat().st_size, resend=True
        )
    return sha256


def install(
    home: Home,
    bundle_files: BundleFiles,
    tries: int = records.TRIES,
    limits: ValidationLimits = DEFAULT,
    interpreter: str | None = None,
    on_progress: Callable[[str], object] = lambda line: None,
) -> int:
    """Start the probation of a bundle and return the release's number.

    Nothing happens if the bundle is the current release already, can be loaded, and has no new statement or signature.

    Raises
    ------
    ReleaseError
        The bundle is not in the store, or another release is on probation.
    TrustError
        A file has another digest, or the policy does not trust the bundle.
    SelftestError, BackendError, BundleError
        The bundle does not work on this device. The current release stays.
    """
    files = bundle_files.files()
    with home.locked():
        transitions.recover(home)
        current = records.current_number(home)
        if (
            current is not None
            and files.items() <= records.installed_files(home, current).items()
            and not current_release.refusal_reason(home)
        ):
            return current
        _check_no_probation(home)
        number = _build(home, files)
        handle = os.open(home.release(number), os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH)  # keeps `gc` from removing it
    try:
        on_progress(f"release {number}: running its self-test on this device")
        report = ValidationProcess(home, number, limits, interpreter).wait()  # other commands may run meanwhile
        with home.locked():
            transitions.recover(home)
            if number != records.current_number(home):  # otherwise another command was faster
                _check_unused(home, number)
                _record_validation(home, number, report)
                _check_no_probation(home)
                _admit(home, number, report["name"])  # again, because the policy or the versions may have changed
                transitions.start_probation(home, number, tries)
    finally:
        os.close(handle)
    return number


def _check_no_probation(home: Home) -> None:
    probation = records.read_probation(home)
    if probation is not None:
        number = probation.release
        raise ReleaseError(f"release {number} is on probation; first run `edgerun confirm` or `edgerun rollback`")


def _check_unused(home: Home, number: int) -> None:
    if records.is_confirmed(home, number) or records.has_failed(home, number):
        current = records.current_number(home)
        raise ReleaseError(
            f"release {number}: another command has tried it meanwhile, and release {current} is current; "
            f"see `edgerun status`"
        )


def _build(home: Home, files: dict[str, str]) -> int:
    """Build a release that the policy admits, or reuse one that a killed command has built."""
    _check_stored(home, files)
    for number in reversed(records.release_numbers(home)):
        is_unused = not records.has_failed(home, number) and not records.is_confirmed(home, number)
        if is_unused and records.installed_files(home, number) == files and _is_intact(home, number):
            _admit(home, number)
            return number
    number = max(records.release_numbers(home), default=0) + 1
    folder = home.releases / f".{number}.tmp"
    folder.mkdir(mode=READABLE)
    for name, sha256 in files.items():
        os.link(home.store / sha256, folder / name)
    older = incoming_files.modification_times_ns(home)
    install = {"sha256": files[records.BUNDLE], "files": files, "at": time.time(), records.OLDER: older}
    records.write_record(folder / records.INSTALL, install)
    os.replace(folder, home.release(number))
    sync_folder(home.releases)
    _admit(home, number)
    return number


def _check_stored(home: Home, files: dict[str, str]) -> None:
    """Check that every file is in the store with the right digest."""
    for sha256 in files.values():
        path = home.store / sha256
        if not SHA256.fullmatch(sha256) or not path.is_file():
            raise ReleaseError(f"{sha256}: is not in the store; use `edgerun receive {sha256}` first")
        if not incoming_files.is_stored(home, sha256):
            raise TrustError(f"{sha256}: the digest has changed, so it was removed; receive it again")


def _is_intact(home: Home, number: int) -> bool:
    with suppress(TrustError):
        for name, sha256 in records.installed_files(home, number).items():
            current_release.check_file(str(home.release(number) / name), sha256)
        return True
    return False


def _admit(home: Home, number: int, name: str | None = None) -> None:
    """Check a release against the policy and record the result. `name` is the name in the manifest, once it was read.

    A refused release is not marked as failed, because the device may get `ssh-keygen` or a newer policy later.
    """
    floors = records.checked_version_floors(home) if homes_with_policy(str(home.root)) else {}
    trusted = current_release.check_trust(home, number, floors, records.bundle_digest(home, number), name)
    path = home.release(number) / records.INSTALL
    record = records.read_record(path)
    if trusted != record.get("trusted"):
        records.write_record(path, {**record, "trusted": trusted})


def _record_validation(home: Home, number: int, report: dict[str, Any]) -> None:
    """Record the result of the validation, and raise an error if the release does not work here.

    If only an interpreter is missing, the release is not marked as failed, because the bundle is not at fault.
    """
    folder = home.release(number)
    if not folder.is_dir():
        raise ReleaseError(f"release {number}: was removed meanwhile; install it again")
    name = report.get("kind", "")
    error_class = (
        MissingInterpreterError if name == MissingInterpreterError.__name__ else getattr(errors, name, SelftestError)
    )
    if error_class is not MissingInterpreterError:
        records.write_record(folder / records.PROOF, {**report, "at": time.time()})
        if report["problem"]:
            transitions.mark_failed(home, number, report["problem"])
    if report["problem"]:
        raise error_class(f"release {number}: {report['problem']}; it was not installed")
