"""Annotation formats for boxes in pictures. Each format has a module with the name of its key, which offers

    read(source, listing, extra) -> Annotations

for a folder or a zip (`edgekit/data/archives.py`). It raises DataError if the files are not in this format.
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
from typing import TYPE_CHECKING, Literal

from edgekit.core.errors import DataError
from edgekit.data import folder_layout
from edgekit.data.types import Keypoints

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

Extra = Literal["keypoints", "masks"]
"""What is read of each object besides its box."""
NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
PICTURES = folder_layout.PICTURES.suffixes
SPLITS = {**folder_layout.SPLITS, "trainval": "train"}
"""Words in the names of files and folders, and the split that each stands for."""
MAX_LISTED = 5
MAX_BOXES = 100
"""Largest number of boxes in a picture, and largest value of `data.most_boxes`."""
MASKS = {"SegmentationClass", "SegmentationObject"}
"""Folders in which Pascal VOC keeps masks. A mask there has the same name as its picture."""


@dataclass(frozen=True)
class Box:
    """An object in a picture. Its sides are in pixels or, with `is_relative`, in fractions of the width and height.

    So are its `keypoints`, each x, y and 0 (not labelled), 1 (hidden) or 2 (visible). `area` is in square pixels, and
    None if it is not known. A crowd marks several objects that are not labelled one by one. The mask is given by
    `polygons`, each x and y of its points in turn, or by COCO's `run_lengths` over the whole picture.
    """

    label: str
    left: float
    top: float
    right: float
    bottom: float
    is_relative: bool = False
    keypoints: tuple[tuple[float, float, int], ...] = ()
    area: float | None = None
    is_crowd: bool = False
    polygons: tuple[tuple[float, ...], ...] = ()
    run_lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture's name in the folder and its boxes. `size` is the (width, height) that its annotations state."""

    name: str
    split: str
    boxes: tuple[Box, ...]
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Annotations:
    """Pictures in the order of their names, and classes in the order of their numbers.

    `keypoints` are those that the annotations declare, and `has_masks` says whether each object has a mask, even if
    they were read without.
    """

    pictures: tuple[Picture, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    keypoints: Keypoints | None = None
    has_masks: bool = False


def read_annotations(name: str, source: FolderArchive | ZipArchive, extra: Extra | None = None) -> Annotations:
    """Read the annotations of a folder or a zip in the format `name`.

    With an `extra`, crowds are read, too. With keypoints, only objects of classes that have them are read.

    Raises
    ------
    DataError
        A file is not in this format, no picture has annotations, or they lack the extra.
    """
    listing = source.listing
    module = importlib.import_module(f"{__name__}.{name}")
    annotations: Annotations = module.read(source, listing, extra)
    links = linked_folder_notes(listing)
    if not annotations.pictures:
        link_text = "".join(f"; {each}" for each in links)
        raise DataError(f"data.path: no picture in it has {name} annotations; check data.annotations{link_text}")
    return replace(annotations, notes=(*annotations.notes, *links))


def read_bytes(source: FolderArchive | ZipArchive, name: str) -> bytes:
    """Return the bytes of a file. Raises DataError if it is damaged or not a regular file."""
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{name}: cannot be read ({reason}); repair or remove it") from None


def read_text(source: FolderArchive | ZipArchive, name: str) -> str:
    """Return the text of a file in UTF-8, without the byte order mark that some editors write."""
    return read_bytes(source, name).decode("utf-8-sig", "replace")


def linked_folder_notes(listing: Listing) -> tuple[str, ...]:
    """Return a note if folders are symbolic links, which are not followed."""
    listed, hidden = listing.links[:MAX_LISTED], len(listing.links) - MAX_LISTED
    rest = f" and {hidden} more" if hidden > 0 else ""
    return (f"skipped {len(listing.links)} linked folders: {', '.join(listed)}{rest}",) if listed else ()


def with_lower_suffix(names: Iterable[str]) -> dict[str, str]:
    """Map names with lower-case suffixes to the real names: 0001.TXT counts as 0001.txt if no such file exists."""
    by_name: dict[str, str] = {}
    for name in names:
        suffix = PurePosixPath(name).suffix
        key = name.removesuffix(suffix) + suffix.lower()
        if key not in by_name or name == key:
            by_name[key] = name
    return by_name


def is_hidden(path: PurePosixPath) -> bool:
    """Return whether the file or a folder above it is hidden or was added by the system."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def unique_pictures(listing: Listing) -> dict[str, str]:
    """Map the stem of each picture to its name in the listing. Raises DataError if two pictures share a stem."""
    by_stem = pictures_by_stem(listing)
    for names in by_stem.values():
        if len(names) > 1:
            raise DataError(
                f"{names[0]} and {names[1]}: two pictures have the same name; rename one and its annotations"
            )
    return {stem: name for stem, [name] in by_stem.items()}


def pictures_by_stem(listing: Listing) -> dict[str, list[str]]:
    """Map each stem to its pictures, without masks and hidden files."""
    by_stem: dict[str, list[str]] = {}
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() in PICTURES and not path.name.startswith(".") and not MASKS & set(path.parts[:-1]):
            by_stem.setdefault(path.stem, []).append(name)
    return by_stem


def split_in_name(part: str) -> str | None:
    """Return the split that a word in the name of a file or folder stands for, or None."""
    return next((SPLITS[word] for word in re.findall("[a-z]+", part.lower()) if word in SPLITS), None)


def folder_split(name: str) -> str | None:
    """Return the split that the nearest folder of a file names, or None."""
    parts = reversed(PurePosixPath(name).parts[:-1])
    return next((split for part in parts if (split := split_in_name(part))), None)


def checked_class_names(classes: list[str], where: str) -> tuple[str, ...]:
    """Return the classes. Raises DataError for an empty name or a duplicate."""
    if not all(isinstance(each, str) and each.strip() for each in classes):
        raise DataError(f"{where}: a class without a name in {classes}; name every class")
    duplicate = next((each for each in classes if classes.count(each) > 1), None)
    if duplicate:
        raise DataError(f"{where}: the class {duplicate!r} is listed twice; remove one")
    return tuple(classes)
