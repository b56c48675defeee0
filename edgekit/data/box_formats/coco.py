"""COCO JSON (Lin et al., ECCV 2014): a file for each split, with `images`, `annotations` and `categories`.

The split is named by the file (instances_train2017.json) or by its folder (train/_annotations.coco.json). Boxes are
left, top, width, height. Crowds (`iscrowd`) are no single things, and are left out.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import DataError
from edgekit.data.box_formats import PICTURES, SPLITS, Annotations, Box, Picture, named_once

if TYPE_CHECKING:
    from edgekit.data.archives import Folder, Listing, Zip


def read(source: Folder | Zip, listing: Listing) -> Annotations:
    """See the package."""
    files = [name for name in listing.files if name.lower().endswith(".json") and PurePosixPath(name).name[0] != "."]
    by_place: dict[str, list[str]] = defaultdict(list)
    for name in listing.files:
        if name.lower().endswith(PICTURES):
            by_place[PurePosixPath(name).name].append(name)
    found: list[Picture] = []
    classes: dict[int, str] = {}
    crowds = 0
    for name in files:
        values = _object(source.read(name), name)
        for each in values["categories"]:
            number, title = _whole(each, "id", name), str(each.get("name") or "")
            if classes.setdefault(number, title) != title:
                raise DataError(f"{name}: category {number} is {title!r}, elsewhere {classes[number]!r}")
        boxes: dict[int, list[Box]] = defaultdict(list)
        for each in values["annotations"]:
            if each.get("iscrowd"):
                crowds += 1
                continue
            boxes[_whole(each, "image_id", name)].append(_box(each, classes, name))
        for each in values["images"]:
            number = _whole(each, "id", name)
            place = _place(each.get("file_name"), name, by_place)
            size = (_whole(each, "width", name), _whole(each, "height", name))
            found.append(Picture(place, _split(name), tuple(boxes.pop(number, ())), size))
        if boxes:
            raise DataError(
                f"{name}: boxes of image {next(iter(boxes))}, which `images` does not list; add or remove it"
            )
    names = named_once([classes[number] for number in sorted(classes)], "categories")
    notes = (f"left out {crowds} boxes that mark crowds",) if crowds else ()
    return Annotations(tuple(sorted(found, key=lambda each: each.name)), names, notes)


def _object(data: bytes, where: str) -> dict[str, list[dict[str, Any]]]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise DataError(f"{where}: no JSON ({error})") from None
    keys = ("images", "annotations", "categories")
    if not isinstance(values, dict) or not all(isinstance(values.get(key), list) for key in keys):
        raise DataError(f"{where}: no COCO annotations; needed lists under {', '.join(keys)}")
    return values


def _split(name: str) -> str:
    path = PurePosixPath(name)
    for part in (path.stem, path.parent.name):
        for word in re.findall("[a-z]+", part.lower()):
            if word in SPLITS:
                return SPLITS[word]
    return "train"


def _place(file_name: Any, where: str, by_place: dict[str, list[str]]) -> str:
    """The picture that `file_name` means: the one of that name, nearest to its annotations."""
    found = by_place.get(PurePosixPath(str(file_name)).name, [])
    if not found:
        raise DataError(f"{where}: there is no picture {str(file_name)!r}; put it beside the annotations")
    beside = PurePosixPath(where).parent
    near = [each for each in found if each.endswith(str(file_name)) and PurePosixPath(each).is_relative_to(beside)]
    return (near or found)[0]


def _box(values: dict[str, Any], classes: dict[int, str], where: str) -> Box:
    number, sides = _whole(values, "category_id", where), values.get("bbox")
    if number not in classes:
        raise DataError(f"{where}: category_id {number} has no name in `categories`; add it")
    if not isinstance(sides, list) or len(sides) != 4 or not all(isinstance(side, int | float) for side in sides):
        raise DataError(f"{where}: bbox is {sides!r}; needed left, top, width, height")
    left, top, width, height = (float(side) for side in sides)
    return Box(classes[number], left, top, left + width, top + height)


def _whole(values: dict[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where}: {key} is {value!r}; needed a whole number")
    return value
