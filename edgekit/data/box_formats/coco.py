"""COCO JSON (Lin et al., ECCV 2014): a file for each split, with `images`, `annotations` and `categories`.

The split is named by the file (instances_train2017.json) or by its folder (train/_annotations.coco.json). Boxes are
left, top, width, height. Crowds (`iscrowd`) are no single things, and are left out. So is a category that no box has,
such as the first of every export of Roboflow. A picture is found by its `file_name`: below the folder of its JSON, else
in the folder of the same split.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from edgekit.core.config import shortened_repr
from edgekit.core.errors import DataError
from edgekit.data.box_formats import (
    MAX_LISTED,
    PICTURES,
    Annotations,
    Box,
    Picture,
    checked_class_names,
    folder_split,
    is_hidden,
    read_bytes,
    split_in_name,
)
from edgekit.runner.errors import bounded_recursion

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

KEYS = ("images", "annotations", "categories")
MOST_PIXELS = 1e9
"""Of a side: what is larger, or no number, is no box."""


def read(source: FolderArchive | ZipArchive, listing: Listing) -> Annotations:
    """See the package."""
    shown = [name for name in listing.files if not is_hidden(PurePosixPath(name))]
    by_place: dict[str, list[str]] = defaultdict(list)
    for name in shown:
        if name.lower().endswith(PICTURES):
            by_place[PurePosixPath(name).name].append(name)
    found: dict[str, Picture] = {}
    listed_by: dict[str, str] = {}
    classes: dict[int, str] = {}
    used: set[int] = set()
    crowds, others = 0, []
    for name in (each for each in shown if each.lower().endswith(".json")):
        values = _object(read_bytes(source, name), name)
        if values is None:
            others.append(name)
            continue
        for each in values["categories"]:
            number, title = _whole(each, "id", name), each.get("name")
            if not isinstance(title, str):
                raise DataError(f"{name}: category {number} is called {shortened_repr(title)}; needed a word")
            if classes.setdefault(number, title) != title:
                raise DataError(f"{name}: category {number} is {title!r}, elsewhere {classes[number]!r}")
        boxes: dict[int, list[Box]] = defaultdict(list)
        for each in values["annotations"]:
            if each.get("iscrowd"):
                crowds += 1
                continue
            boxes[_whole(each, "image_id", name)].append(_box(each, classes, name))
            used.add(each["category_id"])
        numbers: set[int] = set()
        for each in values["images"]:
            number = _whole(each, "id", name)
            if number in numbers:
                raise DataError(f"{name}: two images have the id {number}; give each its own")
            numbers.add(number)
            place = _place(each.get("file_name"), name, by_place)
            if place in found:
                raise DataError(f"{place}: listed in {listed_by[place]} and again in {name}; keep one of the two")
            size = (_whole(each, "width", name), _whole(each, "height", name))
            found[place] = Picture(place, _split(name) or "train", tuple(boxes.pop(number, ())), size)
            listed_by[place] = name
        if boxes:
            raise DataError(
                f"{name}: boxes of image {next(iter(boxes))}, which `images` does not list; add or remove it"
            )
    names = checked_class_names([classes[number] for number in sorted(used)], "categories")
    notes = [f"left out {crowds} boxes that mark crowds"] if crowds else []
    if empty := [classes[number] for number in sorted(set(classes) - used)]:
        notes.append(f"left out {len(empty)} categories that no box has: {', '.join(empty[:MAX_LISTED])}")
    if others:
        notes.append(f"passed by {len(others)} .json files that are no COCO annotations; the first is {others[0]}")
    return Annotations(tuple(found[name] for name in sorted(found)), names, tuple(notes))


def _object(data: bytes, where: str) -> dict[str, list[dict[str, Any]]] | None:
    """The file's lists of objects; None where it is another tool's, DataError where it is no whole COCO."""
    try:
        with bounded_recursion():
            values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: no JSON ({error})") from None
    if not isinstance(values, dict) or sum(key in values for key in KEYS) < 2 or _holds_captions(values):
        return None
    if not all(isinstance(values.get(key), list) for key in KEYS):
        raise DataError(f"{where}: no COCO annotations; needed lists under {', '.join(KEYS)}")
    for key in KEYS:
        odd = next((each for each in values[key] if not isinstance(each, dict)), None)
        if odd is not None or None in values[key]:
            raise DataError(f"{where}: {key} holds {shortened_repr(odd)}; needed objects, as COCO has them")
    return values


def _holds_captions(values: dict[str, Any]) -> bool:
    """Whether it is the file of COCO that says in words what is in each picture."""
    lines = values.get("annotations")
    return "categories" not in values and isinstance(lines, list) and all("caption" in each for each in lines[:1])


def _split(name: str) -> str | None:
    """What the words of a file's name or of its folder say."""
    path = PurePosixPath(name)
    return next((found for part in (path.stem, path.parent.name) if (found := split_in_name(part))), None)


def _place(file_name: Any, where: str, by_place: dict[str, list[str]]) -> str:
    """The one picture that `file_name` means; DataError where there is none, or several fit."""
    wanted = [part for part in PurePosixPath(str(file_name)).parts if part != ".."]
    named = by_place.get(wanted[-1], []) if wanted else []
    if not named:
        raise DataError(f"{where}: there is no picture {str(file_name)!r}; put it beside the annotations")
    split = _split(where)
    found = [each for each in named if list(PurePosixPath(each).parts[-len(wanted) :]) == wanted]
    if not found and len(named) == 1 and folder_split(named[0]) in (None, split):
        return named[0]  # moved since it was annotated, and the only one of its name
    if not found:
        raise DataError(
            f"{where}: {str(file_name)!r} is in another folder, {_some(named)}; write that folder into file_name"
        )
    beside = PurePosixPath(where).parent
    found = [each for each in found if PurePosixPath(each).is_relative_to(beside)] or found
    if len(found) > 1:
        found = [each for each in found if split and folder_split(each) == split] or found
    if len(found) > 1:
        raise DataError(f"{where}: {str(file_name)!r} may be {_some(found)}; write its folder into file_name")
    return found[0]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return " or ".join(names[:MAX_LISTED]) + more


def _box(values: dict[str, Any], classes: dict[int, str], where: str) -> Box:
    number, sides = _whole(values, "category_id", where), values.get("bbox")
    if number not in classes:
        raise DataError(f"{where}: category_id {number} has no name in `categories`; add it")
    if not isinstance(sides, list) or len(sides) != 4 or not all(map(_is_side, sides)):
        raise DataError(f"{where}: bbox is {shortened_repr(sides)}; needed left, top, width, height")
    left, top, width, height = (float(side) for side in sides)
    return Box(classes[number], left, top, left + width, top + height)


def _is_side(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_PIXELS


def _whole(values: dict[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where}: {key} is {shortened_repr(value)}; needed a whole number")
    return value
