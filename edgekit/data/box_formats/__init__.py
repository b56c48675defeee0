"""Files that say which things are where in pictures: one format each, the file's name is its key. Each of them offers

    read(source, listing) -> Annotations

of a folder or a zip (`edgekit/data/archives.py`). DataError where the files are not of the format.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edgekit.core.errors import DataError
from edgekit.data import folder_layout

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
PICTURES = folder_layout.PICTURES.suffixes
SPLITS = {**folder_layout.SPLITS, "trainval": "train"}
"""Names of files and folders, and the split that they mean."""
MAX_LISTED = 5
MAX_BOXES = 100
"""Of a picture: `data.most_boxes` goes no higher."""
MASKS = {"SegmentationClass", "SegmentationObject"}
"""Folders of Pascal VOC with masks, which are called like their pictures."""


@dataclass(frozen=True)
class Box:
    """A thing in a picture. Sides are in pixels; with `is_relative` in shares of the width and the height."""

    label: str
    left: float
    top: float
    right: float
    bottom: float
    is_relative: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture by its name in the folder, with its boxes; `size` is the (width, height) that its file states."""

    name: str
    split: str
    boxes: tuple[Box, ...]
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Annotations:
    """Pictures in the order of their names, and the classes in the order of their numbers."""

    pictures: tuple[Picture, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_annotations(name: str, source: FolderArchive | ZipArchive) -> Annotations:
    """What a folder or a zip says in this format."""
    listing = source.listing()
    found: Annotations = importlib.import_module(f"{__name__}.{name}").read(source, listing)
    links = linked_folder_notes(listing)
    if not found.pictures:
        said = "".join(f"; {each}" for each in links)
        raise DataError(f"data.path: no picture with {name} annotations in it; look at data.annotations{said}")
    return replace(found, notes=(*found.notes, *links))


def read_bytes(source: FolderArchive | ZipArchive, name: str) -> bytes:
    """The bytes of a file; DataError where it is damaged, or no regular file."""
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{name}: cannot be read ({said}); repair or remove it") from None


def read_text(source: FolderArchive | ZipArchive, name: str) -> str:
    """The same of a text in UTF-8, without the mark that some editors put before it."""
    return read_bytes(source, name).decode("utf-8-sig", "replace")


def linked_folder_notes(listing: Listing) -> tuple[str, ...]:
    """A note, where a folder is a symbolic link: those are not entered."""
    shown, more = listing.links[:MAX_LISTED], len(listing.links) - MAX_LISTED
    behind = f" and {more} more" if more > 0 else ""
    return (f"skipped {len(listing.links)} linked folders: {', '.join(shown)}{behind}",) if shown else ()


def with_lower_suffix(names: Iterable[str]) -> dict[str, str]:
    """Each name by itself with its suffix in small letters: 0001.TXT is 0001.txt where no other file is."""
    found: dict[str, str] = {}
    for name in names:
        suffix = PurePosixPath(name).suffix
        key = name.removesuffix(suffix) + suffix.lower()
        if key not in found or name == key:
            found[key] = name
    return found


def is_hidden(path: PurePosixPath) -> bool:
    """Whether the file, or a folder above it, is none of the user's."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def unique_pictures(listing: Listing) -> dict[str, str]:
    """Every picture's name in the listing by its stem; DataError where two pictures share one."""
    found = pictures_by_stem(listing)
    for names in found.values():
        if len(names) > 1:
            raise DataError(f"{names[0]} and {names[1]}: two pictures of one name; rename one and its annotations")
    return {stem: name for stem, [name] in found.items()}


def pictures_by_stem(listing: Listing) -> dict[str, list[str]]:
    """The pictures of each stem, masks and hidden files aside."""
    found: dict[str, list[str]] = {}
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() in PICTURES and not path.name.startswith(".") and not MASKS & set(path.parts[:-1]):
            found.setdefault(path.stem, []).append(name)
    return found


def split_in_name(part: str) -> str | None:
    """The split that a word of a file's or a folder's name means; None where no word does."""
    return next((SPLITS[word] for word in re.findall("[a-z]+", part.lower()) if word in SPLITS), None)


def folder_split(name: str) -> str | None:
    """The split that the nearest folder of a file names; None where no folder names one."""
    parts = reversed(PurePosixPath(name).parts[:-1])
    return next((found for part in parts if (found := split_in_name(part))), None)


def checked_class_names(classes: list[str], where: str) -> tuple[str, ...]:
    """The classes; DataError for one without a name, or one that stands twice."""
    if not all(isinstance(each, str) and each.strip() for each in classes):
        raise DataError(f"{where}: a class without a name in {classes}; name every class")
    twice = next((each for each in classes if classes.count(each) > 1), None)
    if twice:
        raise DataError(f"{where}: the class {twice!r} stands twice; remove one")
    return tuple(classes)
