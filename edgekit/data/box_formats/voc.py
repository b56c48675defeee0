"""Pascal VOC (Everingham et al. 2010): one XML file per picture, and a list of names for each split.

Annotations/NAME.xml has `object` elements, each with a `name` and a `bndbox`. ImageSets/Main/train.txt, val.txt and
test.txt list names, one per line; trainval.txt can replace train.txt. Without lists, folders called train, valid and
test define the splits, as in Roboflow's exports; without those, all pictures are in train. Pixels count from 1.
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
    Extra,
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


def read(source: FolderArchive | ZipArchive, listing: Listing, extra: Extra | None = None) -> Annotations:
    """Read Pascal VOC annotations, which have boxes alone; see the package."""
    if extra is not None:
        raise DataError(f"data.annotations: voc has no {extra}; export the annotations as COCO or YOLO")
    by_stem, split_by_stem = pictures_by_stem(listing), listed_splits(source, listing)
    has_folders = not split_by_stem and any(folder_split(name) == "train" for name in listing.files)
    pictures, missing = [], []
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() != ".xml" or path.name.startswith("."):
            continue
        by_folder = (folder_split(name) if has_folders else None) or "train"
        split = split_by_stem.get(path.stem) if split_by_stem else by_folder
        if split is None:
            continue
        if path.stem not in by_stem:
            missing.append(name)
            continue
        boxes, size = _parse(read_bytes(source, name), name)
        pictures.append(Picture(_picture(name, by_stem[path.stem]), split, boxes, size))
    if missing:
        raise DataError(f"{missing[0]}: there is no picture with this name ({len(missing)} files lack theirs); add it")
    classes = sorted({box.label for picture in pictures for box in picture.boxes})
    unlisted = len(split_by_stem) - len(pictures) if split_by_stem else 0
    notes = (f"{unlisted} names in ImageSets have no annotations",) if unlisted > 0 else ()
    return Annotations(tuple(pictures), checked_class_names(classes, "annotations"), notes)


def _picture(name: str, pictures: list[str]) -> str:
    """Return the picture of an annotation: the one in the same folder or, failing that, in a folder of its split."""
    parent, split = PurePosixPath(name).parent, folder_split(name)
    same_folder = [each for each in pictures if PurePosixPath(each).parent == parent]
    matches = same_folder or [each for each in pictures if folder_split(each) == split] or pictures
    if len(matches) > 1:
        raise DataError(
            f"{matches[0]} and {matches[1]}: two pictures have the same name; rename one and its annotations"
        )
    return matches[0]


def listed_splits(source: FolderArchive | ZipArchive, listing: Listing, folder: str = "Main") -> dict[str, str]:
    """Return the split of each listed name. The result is empty if there are no lists.

    The lists are those in ImageSets/`folder` or, failing that, in ImageSets. trainval.txt is used only if there is no
    train.txt beside it. Names that are in trainval.txt and in val.txt belong to validation.
    """
    splits: dict[str, str] = {}
    for path in _lists(listing, folder):
        split = SPLITS[path.stem.lower()]
        for line in read_text(source, str(path)).splitlines():
            stem = line.split()[0] if line.split() else ""
            is_narrower = path.stem.lower() == "trainval" and splits.get(stem) == "validation"
            if not stem or is_narrower:
                continue
            if splits.get(stem, split) != split:
                raise DataError(f"{path}: {stem!r} is in {splits[stem]} as well; a picture belongs to one split")
            splits[stem] = split
    return splits


def _lists(listing: Listing, folder: str) -> list[PurePosixPath]:
    """Return the paths of the lists to use, with trainval.txt last."""
    named_lists = [path for path in map(PurePosixPath, listing.files) if path.suffix.lower() == ".txt"]
    named_lists = [path for path in named_lists if path.stem.lower() in SPLITS]
    lists = [path for path in named_lists if path.parts[-3:-1] == ("ImageSets", folder)]
    lists = lists or [path for path in named_lists if path.parent.name == "ImageSets"]
    with_train = {path.parent for path in lists if path.stem.lower() == "train"}
    trainval_lists = [path for path in lists if path.stem.lower() == "trainval"]
    return [
        *(each for each in lists if each not in trainval_lists),
        *(each for each in trainval_lists if each.parent not in with_train),
    ]


def _parse(data: bytes, where: str) -> tuple[tuple[Box, ...], tuple[int, int] | None]:
    if len(data) > MOST_BYTES or b"<!ENTITY" in data:
        raise DataError(
            f"{where}: {len(data)} bytes, or it declares entities; annotations must be small and plain, "
            f"so export them again"
        )
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise DataError(f"{where}: not XML ({error}); export it again") from None
    boxes = tuple(_box(each, where) for each in root.iter("object"))
    width, height = (_number(root, f"size/{side}", where, optional=True) for side in ("width", "height"))
    return boxes, (int(width), int(height)) if width and height else None


def _box(element: ElementTree.Element, where: str) -> Box:
    label = (element.findtext("name") or "").strip()
    if not label:
        raise DataError(f"{where}: an object without a name; name its class")
    left, top, right, bottom = (_number(element, f"bndbox/{side}", where) for side in SIDES)
    return Box(label, left - 1, top - 1, right, bottom)


def _number(element: ElementTree.Element, path: str, where: str, optional: bool = False) -> float:
    text = element.findtext(path)
    if text is None and optional:
        return 0.0
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where}: {path} is {shortened_repr(text)}; it must be a number")
    return number
