"""Bundles: one data-only zip, read in memory and never extracted.

A bundle has exactly one spelling: `manifest.json` first, the other members sorted, all stored uncompressed with
timestamps of 1980. What cannot be written back byte for byte is refused, so nothing can hide between the members.
Model files hardly compress, and stored bytes do not depend on a compression library's version.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.runner import manifest as manifests
from edgekit.runner.errors import BundleError, TrustError
from edgekit.runner.files import write_atomically
from edgekit.runner.manifest import Manifest

MANIFEST = "manifest.json"
EPOCH = (1980, 1, 1, 0, 0, 0)
LARGEST_BYTES = 2**31 - 1
LARGEST_MANIFEST_BYTES = 4 * 2**20
UNIX = 3
REGULAR_FILE = 0o100644 << 16
FAULTS = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OSError, struct.error, LookupError)
"""What `zipfile` raises on mangled archives."""


@dataclass(frozen=True)
class Bundle:
    """A verified bundle. `members` holds every file but the manifest; `sha256` is the whole file's."""

    manifest: Manifest
    members: dict[str, bytes]
    sha256: str

    def model_files(self) -> dict[str, bytes]:
        """The files that the interpreter opens."""
        return {name: self.members[name] for name in self.manifest.model_files}


def write(path: str | os.PathLike[str], manifest: Manifest, members: Mapping[str, bytes]) -> str:
    """Write a bundle, atomically; the manifest's `members` are filled in. Returns the file's sha256."""
    facts = {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in sorted(members.items())}
    text = manifests.to_json(replace(manifest, members=facts))
    manifests.parse(text)
    data = _pack(text, members)
    write_atomically(Path(path), data)
    return _sha256(data)


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read and verify; BundleError for what is no bundle, TrustError naming the member for what was changed."""
    data = _load(Path(path))
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except FAULTS as error:
        raise BundleError(f"{path}: not a bundle, or cut short ({error}); copy it again") from None
    with archive:
        entries = archive.infolist()
        _check_entries(entries)
        if not entries or entries[0].filename != MANIFEST:
            raise BundleError(f"{path}: not a bundle: {MANIFEST} must be its first member")
        text = _member(archive, entries[0], LARGEST_MANIFEST_BYTES)
        manifest = manifests.parse(text)
        listed, found = set(manifest.members), {entry.filename for entry in entries[1:]}
        for name in sorted(found - listed):
            raise TrustError(f"{name}: the manifest does not list it; the bundle was changed")
        for name in sorted(listed - found):
            raise TrustError(f"{name}: listed in the manifest but missing; the bundle was changed")
        members = {entry.filename: _verified(archive, entry, manifest.members) for entry in entries[1:]}
    if manifests.to_json(manifest) != text:
        raise TrustError(f"{MANIFEST}: not spelled as edgekit writes it; the bundle was changed")
    if _pack(text, members) != data:
        raise TrustError(f"{path}: the archive is not packed as edgekit packs it; something was added or changed")
    return Bundle(manifest, members, _sha256(data))


def _load(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BundleError(f"{path}: larger than 2 GB; not a bundle")
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    seen = set()
    for entry in entries:
        name = entry.filename
        if not manifests.MEMBER.fullmatch(name):
            raise TrustError(f"{name!r}: not a plain relative name; refused")
        if name in seen:
            raise TrustError(f"{name}: stands twice in the archive; refused")
        if entry.external_attr != REGULAR_FILE:
            raise TrustError(f"{name}: a link, a folder or a special file, or packed by another tool; refused")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits or entry.compress_size != entry.file_size:
            raise TrustError(f"{name}: compressed or encrypted; members of a bundle are stored; refused")
        seen.add(name)


def _verified(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, members: Mapping[str, Mapping[str, Any]]) -> bytes:
    facts = members[entry.filename]
    if entry.file_size != facts["bytes"]:
        raise TrustError(
            f"{entry.filename}: {entry.file_size} bytes, not the manifest's {facts['bytes']}; it was changed"
        )
    data = _member(archive, entry, facts["bytes"])
    if _sha256(data) != facts["sha256"]:
        raise TrustError(f"{entry.filename}: its sha256 is not the manifest's; it was changed")
    return data


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, largest: int) -> bytes:
    if entry.file_size > largest:
        raise TrustError(f"{entry.filename}: {entry.file_size} bytes, at most {largest} are allowed; refused")
    try:
        return archive.read(entry)
    except FAULTS as error:
        raise TrustError(f"{entry.filename}: cannot be read back ({error}); it was changed") from None


def _pack(manifest: bytes, members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [(MANIFEST, manifest), *sorted(members.items())]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = UNIX
            entry.external_attr = REGULAR_FILE
            archive.writestr(entry, data)
    return buffer.getvalue()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
