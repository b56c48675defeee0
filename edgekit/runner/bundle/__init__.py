"""Bundles: a single data-only zip file, read in memory and never extracted.

A bundle has exactly one valid byte representation (`archive.py`): `manifest.json` first, then the other members in
sorted order. Anything else is refused. Members are stored uncompressed, because model files hardly compress, and
because stored bytes do not depend on the version of a compression library.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from edgekit.runner import cpu
from edgekit.runner.bundle import archive, manifest_json, sha256
from edgekit.runner.bundle.archive import LARGEST_MANIFEST_BYTES, MANIFEST
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import BundleError, TrustError


class Bundle(NamedTuple):
    """A verified bundle. `members` holds every file except the manifest, whose bytes are `text`.

    Like every record type that is defined at start-up and needs no checks, it is a named tuple, because defining a
    dataclass takes 0.4 ms longer.
    """

    manifest: Manifest
    members: dict[str, bytes]
    text: bytes

    @property
    def identity(self) -> str:
        """The SHA-256 of the manifest, which contains the digests of all other members."""
        return sha256.hexdigest(self.text)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the whole file."""
        digest = sha256.new(sum(len(data) for data in self.members.values()))
        for part in archive.archive_parts({MANIFEST: self.text, **self.members}):
            digest.update(part)
        text: str = digest.hexdigest()
        return text

    def model_files(self) -> dict[str, bytes]:
        """Return the files that the interpreter opens."""
        return {name: self.members[name] for name in self.manifest.model_files}


def write(path: str | os.PathLike[str], manifest: Manifest, members: Mapping[str, bytes]) -> str:
    """Write a bundle atomically and return the SHA-256 of the file.

    Parameters
    ----------
    path : str or path-like
        Where to write. An existing file is replaced.
    manifest : Manifest
        The bundle's description. Its `members` are filled in here.
    members : mapping of str to bytes
        The contents of every file except the manifest, by name.

    Raises
    ------
    BundleError
        The manifest contradicts itself or the members.
    """
    from pathlib import Path

    from edgekit.runner.files import write_atomically

    facts = {name: {"bytes": len(data), "sha256": sha256.hexdigest(data)} for name, data in sorted(members.items())}
    text = manifest_json.to_json(replace(manifest, members=facts))
    manifest_json.parse(text)
    data = b"".join(archive.archive_parts({MANIFEST: text, **dict(sorted(members.items()))}))
    write_atomically(Path(path), data)
    return sha256.hexdigest(data)


def check_architecture(manifest: Manifest) -> None:
    """Raise BundleError if the bundle was made for other machines."""
    supported, here = manifest.architectures, cpu.architecture()
    if supported and here not in {cpu.ARCHITECTURE_ALIASES.get(each.lower(), each) for each in supported}:
        raise BundleError(
            f"the bundle is for {', '.join(supported)}, but this machine is {here}; use the bundle made for it"
        )


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle and check every digest.

    Parameters
    ----------
    path : str or path-like
        The `.edge.zip` file.

    Returns
    -------
    Bundle
        Its `manifest` and the contents of its other files, `members`.

    Raises
    ------
    BundleError
        The file cannot be read, is not a bundle, or has another format version.
    TrustError
        A member was changed, added or removed. The message names it.

    Examples
    --------
    >>> from edgekit.runner import bundle
    >>> opened = bundle.read("digits-tflite-1.0.0.edge.zip")
    >>> opened.manifest.raw.shape
    (8, 8, 1)
    """
    try:
        with open(path, "rb") as stream:
            try:
                return _verify(path, archive.read(stream))
            except archive.BadArchive:
                from edgekit.runner.bundle.diagnosis import explain_bad_archive

                stream.seek(0)
                raise explain_bad_archive(path, stream) from None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_bytes(data: bytes, name: str = "bundle") -> Bundle:
    """Read a bundle from memory. `name` appears in error messages."""
    try:
        return _verify(name, archive.read(io.BytesIO(data)))
    except archive.BadArchive:
        from edgekit.runner.bundle.diagnosis import explain_bad_archive

        raise explain_bad_archive(name, io.BytesIO(data)) from None


def _verify(path: str | os.PathLike[str], members: dict[str, bytes]) -> Bundle:
    if next(iter(members), None) != MANIFEST:
        raise BundleError(f"{path}: not a bundle: {MANIFEST} must be its first member")
    text = members.pop(MANIFEST)
    if len(text) > LARGEST_MANIFEST_BYTES:
        raise TrustError(f"{MANIFEST}: {len(text)} bytes, but at most {LARGEST_MANIFEST_BYTES} are allowed; refused")
    manifest = manifest_json.parse(text)
    listed = manifest.members
    for name in sorted(members.keys() - listed.keys()):
        raise TrustError(f"{name}: the manifest does not list it; the bundle was changed")
    for name in sorted(listed.keys() - members.keys()):
        raise TrustError(f"{name}: listed in the manifest but missing; the bundle was changed")
    for name, data in members.items():
        if len(data) != listed[name]["bytes"]:
            raise TrustError(f"{name}: {len(data)} bytes, not the manifest's {listed[name]['bytes']}; it was changed")
        if sha256.hexdigest(data) != listed[name]["sha256"]:
            raise TrustError(f"{name}: its sha256 is not the manifest's; it was changed")
    if list(members) != sorted(members):
        raise TrustError(f"{path}: its members are not sorted; the archive was packed by another tool; refused")
    if manifest_json.to_json(manifest) != text:
        raise TrustError(f"{MANIFEST}: not formatted as edgekit writes it; the bundle was changed")
    return Bundle(manifest, members, text)
