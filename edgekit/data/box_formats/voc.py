"""Pascal VOC (Everingham et al. 2010): an XML file for each picture, and lists of names for the splits.

Annotations/NAME.xml has `object` elements, each with a `name` and a `bndbox`. ImageSets/Main/train.txt, val.txt and
test.txt list names, one a line, or trainval.txt for train.txt. Without lists, folders called train, valid and test say
it, as in Roboflow's exports; without those too, all pictures are in train. Pixels count from 1.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgekit.core.config import shortened_repr
from edgekit.core.errors import DataError
from edgekit.data.box_formats import (
    SPLITS,
    Annotations,
    Box,
    Picture,
    checked_class_names,
    folder_split,
    pictures_by_stem,
    read_bytes,
    read_text,
)

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

SIDES = ("xmin", "ymin", "xmax", "ymax")
MOST_BYTES = 16 << 20


def read(source: FolderArchive | ZipArchive, listing: Listing) -> Annotations:
    """See the package."""
    by_stem, found_splits = pictures_by_stem(listing), listed_splits(source, listing)
    has_folders = not found_splits and any(folder_split(name) == "train" for name in listing.files)
    found, missing = [], []
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() != ".xml" or path.name.startswith("."):
            continue
        by_folder = (folder_split(name) if has_folders else None) or "train"
        split = found_splits.get(path.stem) if found_splits else by_folder
        if split is None:
            continue
        if path.stem not in by_stem:
            missing.append(name)
            continue
        boxes, size = _parse(read_bytes(source, name), name)
        found.append(Picture(_picture(name, by_stem[path.stem]), split, boxes, size))
    if missing:
        raise DataError(f"{missing[0]}: there is no picture of that name ({len(missing)} such files); add it")
    classes = sorted({box.label for picture in found for box in picture.boxes})
    unlisted = len(found_splits) - len(found) if found_splits else 0
    notes = (f"{unlisted} names of ImageSets have no annotations",) if unlisted > 0 else ()
    return Annotations(tuple(found), checked_class_names(classes, "annotations"), notes)


def _picture(name: str, pictures: list[str]) -> str:
    """The picture of an annotation, of those with its stem: the one in its folder, else in a folder of its split."""
    parent, split = PurePosixPath(name).parent, folder_split(name)
    beside = [each for each in pictures if PurePosixPath(each).parent == parent]
    found = beside or [each for each in pictures if folder_split(each) == split] or pictures
    if len(found) > 1:
        raise DataError(f"{found[0]} and {found[1]}: two pictures of one name; rename one and its annotations")
    return found[0]


def listed_splits(source: FolderArchive | ZipArchive, listing: Listing, folder: str = "Main") -> dict[str, str]:
    """The split of each name, by the lists in ImageSets/`folder`, else in ImageSets itself; empty without lists.

    trainval.txt counts where no train.txt stands beside it; what val.txt lists as well is for validation.
    """
    found: dict[str, str] = {}
    for path in _lists(listing, folder):
        split = SPLITS[path.stem.lower()]
        for line in read_text(source, str(path)).splitlines():
            stem = line.split()[0] if line.split() else ""
            is_narrower = path.stem.lower() == "trainval" and found.get(stem) == "validation"
            if not stem or is_narrower:
                continue
            if found.get(stem, split) != split:
                raise DataError(f"{path}: {stem!r} is in {found[stem]} as well; a picture belongs to one split")
            found[stem] = split
    return found


def _lists(listing: Listing, folder: str) -> list[PurePosixPath]:
    """The lists that count, trainval.txt last."""
    named = [path for path in map(PurePosixPath, listing.files) if path.suffix.lower() == ".txt"]
    named = [path for path in named if path.stem.lower() in SPLITS]
    found = [path for path in named if path.parts[-3:-1] == ("ImageSets", folder)]
    found = found or [path for path in named if path.parent.name == "ImageSets"]
    narrow = {path.parent for path in found if path.stem.lower() == "train"}
    wide = [path for path in found if path.stem.lower() == "trainval"]
    return [*(each for each in found if each not in wide), *(each for each in wide if each.parent not in narrow)]


def _parse(data: bytes, where: str) -> tuple[tuple[Box, ...], tuple[int, int] | None]:
    if len(data) > MOST_BYTES or b"<!ENTITY" in data:
        raise DataError(f"{where}: {len(data)} bytes, or entities; annotations are small and plain: export them again")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise DataError(f"{where}: no XML ({error}); export it again") from None
    boxes = tuple(_box(each, where) for each in root.iter("object"))
    width, height = (_number(root, f"size/{side}", where, optional=True) for side in ("width", "height"))
    return boxes, (int(width), int(height)) if width and height else None


def _box(thing: ElementTree.Element, where: str) -> Box:
    label = (thing.findtext("name") or "").strip()
    if not label:
        raise DataError(f"{where}: an object without a name; name its class")
    left, top, right, bottom = (_number(thing, f"bndbox/{side}", where) for side in SIDES)
    return Box(label, left - 1, top - 1, right, bottom)


def _number(element: ElementTree.Element, path: str, where: str, optional: bool = False) -> float:
    written = element.findtext(path)
    if written is None and optional:
        return 0.0
    try:
        number = float(written or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where}: {path} is {shortened_repr(written)}; it must be a number")
    return number
