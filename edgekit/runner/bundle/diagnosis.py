"""Explain in one line, with the help of `zipfile`, why an archive is not a bundle. Nothing here accepts an archive."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from typing import IO

from edgekit.runner.bundle import archive, manifest_json, sha256
from edgekit.runner.bundle.archive import LARGEST_MANIFEST_BYTES, MANIFEST
from edgekit.runner.bundle.manifest_rules import is_member
from edgekit.runner.errors import BundleError, RunnerError, TrustError

ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError, OSError, struct.error, LookupError)
"""The errors that `zipfile` raises for damaged archives."""


def explain_bad_archive(path: str | os.PathLike[str], stream: IO[bytes]) -> RunnerError:
    """Return the error to raise.

    It is a BundleError if the file is not an archive or has a newer format, and a TrustError if something was changed.
    """
    size = stream.seek(0, 2)
    if size > archive.LARGEST_BYTES:
        return BundleError(f"{path}: larger than 2 GB, so it is not a bundle")
    stream.seek(0)
    try:
        with zipfile.ZipFile(stream) as archive_file:
            return _reason(archive_file, size) or TrustError(
                f"{path}: the archive is not packed as edgekit packs it; something was added or changed"
            )
    except ZIP_ERRORS as error:
        return BundleError(f"{path}: not a bundle, or cut short ({error}); copy it again")


def _reason(archive_file: zipfile.ZipFile, size: int) -> RunnerError | None:
    entries = archive_file.infolist()
    newer_error = _newer_format_error(archive_file, entries)
    if newer_error is not None:
        return newer_error
    seen: set[str] = set()
    for entry in entries:
        problem = _entry_problem(entry, seen, size)
        if problem:
            return TrustError(f"{_printable(entry.filename)}: {problem}; refused")
        seen.add(entry.filename)
    if not entries or entries[0].filename != MANIFEST:
        return BundleError(f"not a bundle: {MANIFEST} must be its first member")
    return _changed_member_error(archive_file, entries)


def _newer_format_error(archive_file: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> RunnerError | None:
    """Return the error if the manifest declares a newer format. Such a bundle may well be packed in another way."""
    first = [entry for entry in entries[:1] if entry.filename == MANIFEST]
    if not first or first[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return None
    try:
        with archive_file.open(first[0]) as stream:
            manifest_json.check_format(stream.read(LARGEST_MANIFEST_BYTES))
    except BundleError as error:
        return error
    except ZIP_ERRORS:
        pass
    return None


def _printable(name: str) -> str:
    """Return an arbitrary name in a form that fits into one line of a terminal."""
    return (name if name.isprintable() else ascii(name))[:200]


def _entry_problem(entry: zipfile.ZipInfo, seen: set[str], size: int) -> str:
    if not is_member(entry.filename):
        return "not a plain relative name"
    if entry.filename in seen:
        return "occurs twice in the archive"
    if entry.external_attr != archive.REGULAR_FILE:
        return "a link, a folder or a special file, or packed by another tool"
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits or entry.compress_size != entry.file_size:
        return "compressed or encrypted; members of a bundle are stored"
    if entry.file_size > size:  # before memory is allocated for it
        return "longer than the whole archive"
    return ""


def _changed_member_error(archive_file: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> RunnerError | None:
    """Return the error for the first member that differs from the manifest, if the manifest can still be read."""
    try:
        members = manifest_json.parse(archive_file.read(entries[0])).members
    except BundleError as error:
        return error
    except ZIP_ERRORS as error:
        return TrustError(f"{MANIFEST}: cannot be read back ({error}); it was changed")
    for entry in entries[1:]:
        listed = members.get(entry.filename)
        if listed is None:
            return TrustError(f"{entry.filename}: the manifest does not list it; the bundle was changed")
        if entry.file_size != listed["bytes"]:
            return TrustError(
                f"{entry.filename}: {entry.file_size} bytes, not the manifest's {listed['bytes']}; it was changed"
            )
        try:
            is_unchanged = sha256.hexdigest(archive_file.read(entry)) == listed["sha256"]
        except ZIP_ERRORS as error:
            return TrustError(f"{entry.filename}: cannot be read back ({error}); it was changed")
        if not is_unchanged:
            return TrustError(f"{entry.filename}: its sha256 is not the manifest's; it was changed")
    return None
