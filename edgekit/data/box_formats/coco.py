"""COCO JSON (Lin et al., ECCV 2014): one file per split, with `images`, `annotations` and `categories`.

The split is named by the file (instances_train2017.json) or by its folder (train/_annotations.coco.json). Boxes are
left, top, width, height. Crowds (`iscrowd`) are left out, because they are not single objects. Categories without boxes
are left out as well, such as the first category in every export of Roboflow. A picture is found by its `file_name`,
below the folder of its JSON or in the folder of the same split.

A category may list the names of its `keypoints` and, as `skeleton`, the pairs between which lines are drawn, counted
from 1. An annotation then has x, y and 0 (not labelled), 1 (hidden) or 2 (visible) for each of them. Crowds are kept
there, because COCO's own evaluation does not count what is found in them.

The mask of an object is its `segmentation`: polygons of x and y in pixels, or run lengths (`counts`) over the picture
of `size`, as a list or compressed to a text. Crowds are kept with masks, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from edgekit.core.config import shortened_repr
from edgekit.core.errors import DataError
from edgekit.data.box_formats import (
    MAX_LISTED,
    PICTURES,
    Annotations,
    Box,
    Extra,
    Picture,
    checked_class_names,
    folder_split,
    is_hidden,
    read_bytes,
    split_in_name,
)
from edgekit.data.object_masks import decompressed
from edgekit.data.types import Keypoints
from edgekit.runner.errors import bounded_recursion

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

KEYS = ("images", "annotations", "categories")
MAX_PIXELS = 1e9
"""Boxes with larger sides, or with values that are not numbers, are not valid."""


def read(source: FolderArchive | ZipArchive, listing: Listing, extra: Extra | None = None) -> Annotations:
    """Read COCO annotations; see the package."""
    visible = [name for name in listing.files if not is_hidden(PurePosixPath(name))]
    by_file_name: dict[str, list[str]] = defaultdict(list)
    for name in visible:
        if name.lower().endswith(PICTURES):
            by_file_name[PurePosixPath(name).name].append(name)
    pictures: dict[str, Picture] = {}
    listed_in: dict[str, str] = {}
    classes: dict[int, str] = {}
    keypoints: dict[int, Keypoints] = {}
    used_categories: set[int] = set()
    has_masks = True
    crowds, without_keypoints, other_files = 0, 0, []
    for name in (entry for entry in visible if entry.lower().endswith(".json")):
        values = _object(read_bytes(source, name), name)
        if values is None:
            other_files.append(name)
            continue
        for entry in values["categories"]:
            number, title = _integer(entry, "id", name), entry.get("name")
            if not isinstance(title, str):
                raise DataError(f"{name}: category {number} is called {shortened_repr(title)}; expected a word")
            if classes.setdefault(number, title) != title:
                raise DataError(
                    f"{name}: category {number} is called {title!r} here, but {classes[number]!r} elsewhere"
                )
            if (declared := _declared_keypoints(entry, name)) is not None:
                keypoints[number] = declared
        boxes: dict[int, list[Box]] = defaultdict(list)
        for entry in values["annotations"]:
            if entry.get("iscrowd") and extra is None:
                crowds += 1
                continue
            box = _box(entry, classes, name)
            has_masks &= bool(entry.get("segmentation"))
            if extra == "keypoints" and entry["category_id"] not in keypoints:
                without_keypoints += 1
                continue
            if extra == "masks":
                box = _with_mask(box, entry, name)
            if extra == "keypoints":
                box = _with_keypoints(box, entry, len(keypoints[entry["category_id"]].names), name)
            boxes[_integer(entry, "image_id", name)].append(box)
            used_categories.add(entry["category_id"])
        numbers: set[int] = set()
        for entry in values["images"]:
            number = _integer(entry, "id", name)
            if number in numbers:
                raise DataError(f"{name}: two images have the id {number}; give each its own id")
            numbers.add(number)
            path = _find_picture(entry.get("file_name"), name, by_file_name)
            if path in pictures:
                raise DataError(f"{path}: listed in {listed_in[path]} and again in {name}; keep one of them")
            size = (_integer(entry, "width", name), _integer(entry, "height", name))
            of_picture = tuple(boxes.pop(number, ()))
            odd = next(
                (sum(box.run_lengths) for box in of_picture if sum(box.run_lengths) not in (0, prod(size))), None
            )
            if odd is not None:
                raise DataError(f"{name}: counts of a mask in {path} have the sum {odd}; it has {prod(size)} pixels")
            pictures[path] = Picture(path, _split(name) or "train", of_picture, size)
            listed_in[path] = name
        if boxes:
            raise DataError(
                f"{name}: boxes of image {next(iter(boxes))}, which `images` does not list; add or remove it"
            )
    names = checked_class_names([classes[number] for number in sorted(used_categories)], "categories")
    notes = [f"left out {crowds} boxes that mark crowds"] if crowds else []
    if without_keypoints:
        notes.append(f"left out {without_keypoints} boxes of categories that have no keypoints")
    if unused := [classes[number] for number in sorted(set(classes) - used_categories)]:
        notes.append(f"left out {len(unused)} categories that no box has: {', '.join(unused[:MAX_LISTED])}")
    if other_files:
        notes.append(
            f"ignored {len(other_files)} .json files that are not COCO annotations; the first is {other_files[0]}"
        )
    declared = _common_keypoints(keypoints, classes, used_categories, is_needed=extra == "keypoints")
    return Annotations(tuple(pictures[name] for name in sorted(pictures)), names, tuple(notes), declared, has_masks)


def _object(data: bytes, where: str) -> dict[str, list[dict[str, Any]]] | None:
    """Return the file's lists of objects, or None if it is not a COCO file. Raises DataError if it is incomplete."""
    try:
        with bounded_recursion():
            values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    if not isinstance(values, dict) or sum(key in values for key in KEYS) < 2 or _holds_captions(values):
        return None
    if not all(isinstance(values.get(key), list) for key in KEYS):
        raise DataError(f"{where}: not COCO annotations; expected lists under {', '.join(KEYS)}")
    for key in KEYS:
        invalid = next((each for each in values[key] if not isinstance(each, dict)), None)
        if invalid is not None or None in values[key]:
            raise DataError(f"{where}: {key} holds {shortened_repr(invalid)}; expected objects, as in COCO")
    return values


def _holds_captions(values: dict[str, Any]) -> bool:
    """Whether the content is COCO's file of captions for the pictures."""
    lines = values.get("annotations")
    return "categories" not in values and isinstance(lines, list) and all("caption" in each for each in lines[:1])


def _split(name: str) -> str | None:
    """The split that a word in the name of the file or its folder stands for."""
    path = PurePosixPath(name)
    return next((split for part in (path.stem, path.parent.name) if (split := split_in_name(part))), None)


def _find_picture(file_name: Any, where: str, by_file_name: dict[str, list[str]]) -> str:
    """The picture that `file_name` refers to. Raises DataError if there is none, or if there are several candidates."""
    parts = [part for part in PurePosixPath(str(file_name)).parts if part != ".."]
    same_name = by_file_name.get(parts[-1], []) if parts else []
    if not same_name:
        raise DataError(f"{where}: there is no picture {str(file_name)!r}; put it beside the annotations")
    split = _split(where)
    matches = [path for path in same_name if list(PurePosixPath(path).parts[-len(parts) :]) == parts]
    if not matches and len(same_name) == 1 and folder_split(same_name[0]) in (None, split):
        return same_name[0]  # it was moved after it was annotated, and no other picture has its name
    if not matches:
        raise DataError(
            f"{where}: {str(file_name)!r} is in another folder, {_some(same_name)}; write that folder into file_name"
        )
    folder = PurePosixPath(where).parent
    matches = [path for path in matches if PurePosixPath(path).is_relative_to(folder)] or matches
    if len(matches) > 1:
        matches = [path for path in matches if split and folder_split(path) == split] or matches
    if len(matches) > 1:
        raise DataError(f"{where}: {str(file_name)!r} may be {_some(matches)}; write its folder into file_name")
    return matches[0]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return " or ".join(names[:MAX_LISTED]) + more


def _box(values: dict[str, Any], classes: dict[int, str], where: str) -> Box:
    number, sides = _integer(values, "category_id", where), values.get("bbox")
    if number not in classes:
        raise DataError(f"{where}: category_id {number} has no name in `categories`; add it")
    if not isinstance(sides, list) or len(sides) != 4 or not all(map(_is_side, sides)):
        raise DataError(f"{where}: bbox is {shortened_repr(sides)}; expected left, top, width, height")
    left, top, width, height = (float(side) for side in sides)
    return Box(classes[number], left, top, left + width, top + height)


def _declared_keypoints(category: dict[str, Any], where: str) -> Keypoints | None:
    """Return the keypoints that a category names, with its skeleton counted from 0; None if it names none."""
    names, skeleton = category.get("keypoints"), category.get("skeleton") or []
    if not names:
        return None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise DataError(f"{where}: keypoints of a category are {shortened_repr(names)}; expected a list of names")
    if len(set(names)) != len(names) or not all(name and name.isprintable() for name in names):
        raise DataError(f"{where}: keypoints are {shortened_repr(names)}; give each its own name")
    ends = range(1, len(names) + 1)
    if not isinstance(skeleton, list) or not all(_is_pair(line) and {*line} <= {*ends} for line in skeleton):
        raise DataError(
            f"{where}: skeleton is {shortened_repr(skeleton)}; expected pairs of keypoints, counted from 1 to "
            f"{len(names)}"
        )
    return Keypoints(tuple(names), tuple((start - 1, end - 1) for start, end in skeleton))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)


def _common_keypoints(
    keypoints: dict[int, Keypoints], classes: dict[int, str], used: set[int], *, is_needed: bool
) -> Keypoints | None:
    """Return the keypoints of the used categories. Raises DataError if they differ, or are needed and absent."""
    declared = {classes[number]: each for number, each in sorted(keypoints.items()) if number in used}
    if not declared:
        if is_needed:
            raise DataError("categories: none of those with boxes has `keypoints`; export the annotations with them")
        return None
    (first, common), *others = declared.items()
    other = next((name for name, each in others if each.names != common.names), None)
    if other is not None:
        if not is_needed:
            return None
        raise DataError(
            f"categories: {other!r} has other keypoints than {first!r}; a network has the same for all classes, so "
            "keep one of them"
        )
    return common


def _with_keypoints(box: Box, values: dict[str, Any], count: int, where: str) -> Box:
    """Return the box with the keypoints and the area of an annotation, which may lack both."""
    numbers, area = values.get("keypoints", [0] * 3 * count), values.get("area")
    if not isinstance(numbers, list) or len(numbers) != 3 * count or not all(map(_is_side, numbers)):
        raise DataError(
            f"{where}: keypoints are {shortened_repr(numbers)}; expected x, y and visibility for each of {count}"
        )
    if any(seen not in (0, 1, 2) for seen in numbers[2::3]):
        raise DataError(
            f"{where}: keypoints are {shortened_repr(numbers)}; the visibility is 0 (not labelled), 1 (hidden) or 2"
        )
    if area is not None and (not _is_side(area) or area < 0):
        raise DataError(f"{where}: area is {shortened_repr(area)}; expected square pixels")
    points = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return replace(
        box,
        keypoints=tuple((float(x), float(y), int(seen)) for x, y, seen in points),
        area=None if area is None else float(area),
        is_crowd=bool(values.get("iscrowd")),
    )


def _with_mask(box: Box, values: dict[str, Any], where: str) -> Box:
    """Return the box with the mask of an annotation. Raises DataError if it has none, or one that is not valid."""
    mask, is_crowd = values.get("segmentation"), bool(values.get("iscrowd"))
    if isinstance(mask, dict):
        return replace(box, run_lengths=_run_lengths(mask.get("counts"), where), is_crowd=is_crowd)
    if not isinstance(mask, list) or not mask or not all(isinstance(each, list) for each in mask):
        raise DataError(
            f"{where}: segmentation is {shortened_repr(mask)}; expected polygons, or an object with counts, so export "
            "the annotations with masks"
        )
    for polygon in mask:
        if len(polygon) < 6 or len(polygon) % 2 or not all(map(_is_side, polygon)):
            raise DataError(
                f"{where}: a polygon is {shortened_repr(polygon)}; expected x and y of three points or more"
            )
    return replace(box, polygons=tuple(tuple(map(float, polygon)) for polygon in mask), is_crowd=is_crowd)


def _run_lengths(counts: Any, where: str) -> tuple[int, ...]:
    try:
        numbers = decompressed(counts) if isinstance(counts, str) else counts
    except ValueError as error:
        raise DataError(f"{where}: counts are {shortened_repr(counts)}: {error}; export the masks again") from None
    if not isinstance(numbers, list) or not numbers or not all(type(each) is int and each >= 0 for each in numbers):
        raise DataError(f"{where}: counts are {shortened_repr(counts)}; expected whole numbers from 0, or a text")
    return tuple(numbers)


def _is_side(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_PIXELS


def _integer(values: dict[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where}: {key} is {shortened_repr(value)}; expected an integer")
    return value
