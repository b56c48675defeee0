"""Read files of a folder or a zip into memory by their relative names. A zip is never unpacked to disk."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgekit.core.errors import DataError
from edgekit.core.hashing import canonical_json, sha256_file

_MOST_BYTES = 256 << 20  # limit for one member, because a zip of a few kilobytes can expand to any size


@dataclass(frozen=True)
class Listing:
    """Sorted relative names with forward slashes. `links` are symbolic links to folders, which are not followed."""

    files: tuple[str, ...]
    folders: tuple[str, ...]
    links: tuple[str, ...] = ()


class FolderArchive(AbstractContextManager["FolderArchive"]):
    """A folder on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, *_: object) -> None:
        pass

    @cached_property
    def listing(self) -> Listing:
        """The names, read once, because a folder may hold a million."""
        files: list[str] = []
        folders: list[str] = []
        links: list[str] = []
        for root, names, file_names in os.walk(self._path, onerror=_refuse):
            folder = Path(root).relative_to(self._path)
            for name in names:
                is_link = (Path(root) / name).is_symlink()
                (links if is_link else folders).append((folder / name).as_posix())
            files += [(folder / name).as_posix() for name in file_names]
        return Listing(tuple(sorted(files)), tuple(sorted(folders)), tuple(sorted(links)))

    def digest(self) -> str:
        """Return a SHA-256 that covers every name and the SHA-256 of every file."""
        listing = self.listing
        sha = hashlib.sha256(canonical_json([listing.folders, listing.links]))
        for name in listing.files:
            sha.update(canonical_json([name, self._sha256(name)]))
        return sha.hexdigest()

    def read(self, name: str) -> bytes:
        path = self._path / name
        if path.exists() and not path.is_file():
            raise ValueError("is not a regular file")
        return path.read_bytes()

    def _sha256(self, name: str) -> str:
        path = self._path / name
        try:
            return sha256_file(path) if path.is_file() else ""
        except OSError:
            return ""  # `read` reports the reason if the file is a picture


class ZipArchive(AbstractContextManager["ZipArchive"]):
    """A zip file.

    A member that points outside the archive, appears twice, is a link or is encrypted raises an error, because
    skipping it could go unnoticed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: zipfile.ZipFile | None = None

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()

    @cached_property
    def listing(self) -> Listing:
        """The names of the members, read and checked once."""
        infos = self._archive().infolist()
        seen: set[str] = set()
        for info in infos:
            problem = "appears twice" if info.filename in seen else _unsafe(info)
            if problem:
                raise DataError(
                    f"{self._path.name}: member {info.filename!r} {problem}; create the zip again without it"
                )
            seen.add(info.filename)
        files = sorted(info.filename for info in infos if not info.is_dir())
        folders = {info.filename.rstrip("/") for info in infos if info.is_dir()}
        return Listing(tuple(files), tuple(sorted(folders)))

    def digest(self) -> str:
        """Return the SHA-256 of the zip file itself, without reading its table of members."""
        try:
            return sha256_file(self._path)
        except OSError as error:
            raise DataError(f"{self._path}: cannot be read ({error.strerror}); check its permissions") from None

    def read(self, name: str) -> bytes:
        info = self._archive().getinfo(name)
        if info.file_size > _MOST_BYTES:
            raise ValueError(f"unpacks to {info.file_size} bytes, more than {_MOST_BYTES}")
        return self._archive().read(info)

    def _archive(self) -> zipfile.ZipFile:
        if self._open is None:
            try:
                self._open = zipfile.ZipFile(self._path)
            except (zipfile.BadZipFile, OSError, ValueError) as error:
                raise DataError(
                    f"{self._path.name}: neither a folder nor a readable zip ({error}); check that it is complete"
                ) from None
        return self._open


def _unsafe(info: zipfile.ZipInfo) -> str | None:
    name = info.filename
    if name.startswith("/") or ".." in name.split("/") or "\\" in info.orig_filename or ":" in name.partition("/")[0]:
        return "points outside the archive"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a symbolic link"
    if info.flag_bits & 0x1:
        return "is encrypted"
    return None


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions") from None
