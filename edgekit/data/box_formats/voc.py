"""Pascal VOC (Everingham et al. 2010): an XML file for each picture, and lists of names for the splits.

Annotations/NAME.xml has `object` elements, each with a `name` and a `bndbox`. ImageSets/Main/train.txt, val.txt and
test.txt list names, one a line; without them all pictures are in train. Pixels count from 1.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgekit.core.errors import DataError
from edgekit.data.box_formats import SPLITS, Annotations, Box, Picture, named_once, pictures

if TYPE_CHECKING:
    from edgekit.data.archives import Folder, Listing, Zip

SIDES = ("xmin", "ymin", "xmax", "ymax")
MOST_BYTES = 16 << 20


def read(source: Folder | Zip, listing: Listing) -> Annotations:
    """See the package."""
    by_stem, found_splits = pictures(listing), splits(source, listing)
    found, missing = [], []
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() != ".xml" or path.name.startswith("."):
            continue
        split = found_splits.get(path.stem) if found_splits else "train"
        if split is None:
            continue
        if path.stem not in by_stem:
            missing.append(name)
            continue
        boxes, size = _parse(source.read(name), name)
        found.append(Picture(by_stem[path.stem], split, boxes, size))
    if missing:
        raise DataError(f"{missing[0]}: there is no picture of that name ({len(missing)} such files); add it")
    classes = sorted({box.label for picture in found for box in picture.boxes})
    unlisted = len(found_splits) - len(found) if found_splits else 0
    notes = (f"{unlisted} names of ImageSets have no annotations",) if unlisted > 0 else ()
    return Annotations(tuple(found), named_once(classes, "annotations"), notes)


def splits(source: Folder | Zip, listing: Listing, folder: str = "ImageSets") -> dict[str, str]:
    """The split of each name; empty where no lists are below `folder`. A narrower list wins: train over trainval."""
    found: dict[str, str] = {}
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix != ".txt" or path.stem not in SPLITS or folder not in path.parts or path.stem == "trainval":
            continue
        for line in source.read(name).decode("utf-8", "replace").splitlines():
            stem = line.split()[0] if line.split() else ""
            if not stem:
                continue
            if found.get(stem, SPLITS[path.stem]) != SPLITS[path.stem]:
                raise DataError(f"{name}: {stem!r} is in {found[stem]} as well; a picture belongs to one split")
            found[stem] = SPLITS[path.stem]
    return found


def _parse(data: bytes, where: str) -> tuple[tuple[Box, ...], tuple[int, int] | None]:
    if len(data) > MOST_BYTES or b"<!ENTITY" in data:
        raise DataError(f"{where}: {len(data)} bytes, or entities; annotations are small and plain: export them again")
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
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
    text = element.findtext(path)
    if text is None and optional:
        return 0.0
    try:
        return float(text or "")
    except ValueError:
        raise DataError(f"{where}: {path} is {text!r}; it must be a number") from None
