"""YOLO text (Redmon et al. 2016 and its successors): each picture has a .txt beside it with one line per object.

A line holds the class, centre x, centre y, width and height, the latter four as fractions of the picture. A picture
without a .txt has no objects. The .txt files are beside the pictures, or in a folder labels that mirrors the folder
images. Classes are named in data.yaml (`names`) or classes.txt. The splits are defined by train.txt, val.txt and
test.txt if these list pictures, one per line, as Darknet, CVAT and Ultralytics write them. Otherwise, they are defined
by the names of folders.

If data.yaml has `kpt_shape: [keypoints, 2 or 3]`, each line goes on with x and y of every keypoint, as fractions, and
with its visibility if there are three numbers. With two, a keypoint at 0, 0 is not labelled.

Otherwise, a line with more than six numbers is the class and a polygon, x and y of three points or more, as fractions.
The box is then the smallest around the polygon.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from edgekit.core.config import shortened_repr, suggest
from edgekit.core.errors import DataError
from edgekit.data.box_formats import (
    MAX_LISTED,
    PICTURES,
    SPLITS,
    Annotations,
    Box,
    Extra,
    Picture,
    checked_class_names,
    is_hidden,
    read_text,
    with_lower_suffix,
)
from edgekit.data.types import Keypoints
from edgekit.runner.errors import bounded_recursion

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

MAX_WORDS = 6
"""Largest number of words of a box: class, four sides and, in a model's output, a probability. Polygons have more."""
BOX_WORDS = 5
MAX_KEYPOINTS = 500
UNREAD: dict[Extra | None, dict[str, Any]] = {
    None: {"keypoints": (), "polygons": ()}, "keypoints": {"polygons": ()}, "masks": {"keypoints": ()},
}  # fmt: skip
"""Fields of an object that are emptied, by what is read besides the box."""
NAMES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")


PERSON = Keypoints(
    (
        "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
        "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
        "right_ankle",
    ),
    (
        (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10),
        (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
    ),
)  # fmt: skip
"""The keypoints and the skeleton of COCO's persons, which 17 keypoints without names are."""


@dataclass(frozen=True)
class KeypointShape:
    """The keypoints that data.yaml declares, and how many `columns` each has in a line: 2, or 3 with a visibility."""

    keypoints: Keypoints
    columns: int

    @property
    def words(self) -> int:
        """Number of words that the keypoints take in a line."""
        return len(self.keypoints.names) * self.columns


def read(source: FolderArchive | ZipArchive, listing: Listing, extra: Extra | None = None) -> Annotations:
    """Read YOLO annotations; see the package."""
    names, files = read_classes(source, listing), with_lower_suffix(listing.files)
    shape = read_keypoint_shape(source, listing)
    if extra == "keypoints" and shape is None:
        raise DataError("the labels have no keypoints: data.yaml has no kpt_shape, such as [17, 3]; add it")
    paths = [path for path in map(PurePosixPath, listing.files) if path.suffix.lower() in PICTURES]
    paths = [path for path in paths if not path.name.startswith(".")]
    split_by_path = listed_splits(source, listing, paths)
    splits = [split_by_path.get(str(path)) for path in paths] if split_by_path else folder_splits(paths)
    if split_by_path and "train" not in split_by_path.values():
        splits = [split or "train" for split in splits]
    pictures: list[Picture] = []
    used_files: set[str] = set()
    unlabelled, unlisted = [], []
    has_masks = shape is None
    for path, split in zip(paths, splits, strict=True):
        if split is None:
            unlisted.append(str(path))
            used_files.update(files[each] for each in label_paths(path) if each in files)
            continue
        labels = next((files[each] for each in label_paths(path) if each in files), None)
        objects = _parse(read_text(source, labels), labels, names, shape) if labels else ()
        without = next((each for each in objects if not each.polygons), None)
        if extra == "masks" and without is not None:
            raise DataError(f"{labels}: an object of {without.label!r} has a box and no polygon; export polygons")
        has_masks &= without is None
        pictures.append(Picture(str(path), split, tuple(replace(each, **UNREAD[extra]) for each in objects)))
        if labels:
            used_files.add(labels)
        else:
            unlabelled.append(str(path))
    unused = _without_picture(files.values(), used_files, {str(path.parent) for path in paths})
    notes = [f"{len(unused)} label files without a picture; the first is {unused[0]}"] if unused else []
    if unlisted:
        notes.append(f"left out {len(unlisted)} pictures that are in no split's list; the first is {unlisted[0]}")
    if unlabelled:
        notes.append(
            f"{len(unlabelled)} pictures without a label file, which count as empty; the first is {unlabelled[0]}"
        )
    used_classes = {box.label for picture in pictures for box in picture.boxes}
    if empty_classes := [title for title in names if title not in used_classes]:
        notes.append(f"left out {len(empty_classes)} classes that no box has: {', '.join(empty_classes[:MAX_LISTED])}")
    classes = tuple(title for title in names if title in used_classes)
    return Annotations(tuple(pictures), classes, tuple(notes), shape.keypoints if shape else None, has_masks)


def listed_splits(
    source: FolderArchive | ZipArchive, listing: Listing, paths: Sequence[PurePosixPath]
) -> dict[str, str]:
    """Return the split of each picture listed in train.txt, val.txt or test.txt. Empty if there are no such lists.

    A line may be a path on another machine. It then refers to the picture whose path shares the most parts with the
    line, counted from the end.

    Raises
    ------
    DataError
        Two splits list the same picture, or a line may mean several pictures.
    """
    by_name: dict[str, list[PurePosixPath]] = {}
    for path in paths:
        by_name.setdefault(path.name, []).append(path)
    splits: dict[str, str] = {}
    for name in sorted(listing.files):
        path = PurePosixPath(name)
        split = SPLITS.get(path.stem.lower()) if path.suffix.lower() == ".txt" and not is_hidden(path) else None
        lines = [line.strip() for line in read_text(source, name).splitlines() if line.strip()] if split else []
        if split is None or not all(line.lower().endswith(PICTURES) for line in lines):
            continue
        for line in lines:
            if (picture := _find_listed(line, by_name, name)) is None:
                continue
            if splits.setdefault(picture, split) != split:
                raise DataError(
                    f"{name}: {line} is listed for {splits[picture]} as well; a picture belongs to one split"
                )
    return splits


def _find_listed(line: str, by_name: dict[str, list[PurePosixPath]], where: str) -> str | None:
    """Return the picture that a line in a list refers to, or None if no picture has that name."""
    parts = PurePosixPath(line.replace("\\", "/")).parts

    def shared(path: PurePosixPath) -> int:
        pairs = zip(reversed(path.parts), reversed(parts), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    matches = sorted(by_name.get(parts[-1], ()), key=shared, reverse=True)
    if len(matches) > 1 and shared(matches[0]) == shared(matches[1]):
        raise DataError(f"{where}: {line} may be {matches[0]} or {matches[1]}; write its folder into the line")
    return str(matches[0]) if matches else None


def label_paths(path: PurePosixPath) -> list[str]:
    """Return the possible paths of a picture's label file: in the mirrored folder labels, or beside the picture."""
    beside = path.with_suffix(".txt")
    mirrored = PurePosixPath(*("labels" if part == "images" else part for part in beside.parts))
    return [str(mirrored), str(beside)]


def _without_picture(files: Iterable[str], used_files: set[str], picture_folders: set[str]) -> list[str]:
    """Return the label files, in labels/ or beside pictures, that belong to no picture. classes.txt does not count."""
    paths = [path for path in map(PurePosixPath, files) if path.suffix.lower() == ".txt" and not is_hidden(path)]
    paths = [path for path in paths if path.name not in NAMES and str(path) not in used_files]
    paths = [path for path in paths if path.stem.lower() not in SPLITS]
    return [str(path) for path in paths if "labels" in path.parts[:-1] or str(path.parent) in picture_folders]


def folder_splits(paths: Sequence[PurePosixPath]) -> list[str]:
    """Return the split of each file, which is named by the nearest folder above it that is called like a split.

    Upper case and a year at the end of the folder's name do not matter. Files without such a folder above them belong
    to train.

    Raises
    ------
    DataError
        A folder beside split folders has another name, or a folder's name is only similar to that of a split.
    """
    positions = [_split_position(path) for path in paths]
    parents = {path.parts[:position] for path, position in zip(paths, positions, strict=True) if position is not None}
    splits = []
    for path, position in zip(paths, positions, strict=True):
        if position is None:
            unclear = [
                index
                for index in range(len(path.parts) - 1)
                if path.parts[:index] in parents or _resembles_split(path.parts[index])
            ]
            if unclear:
                name = path.parts[unclear[0]]
                suggestion = suggest(name.lower(), list(SPLITS))
                raise DataError(
                    f"{PurePosixPath(*path.parts[: unclear[0] + 1])}: {name!r} is not the name of a split, {suggestion}"
                )
        splits.append("train" if position is None else SPLITS[_plain(path.parts[position])])
    return splits


def _split_position(path: PurePosixPath) -> int | None:
    """Return the index, in the path, of the nearest folder above the file that is called like a split, or None."""
    return next((at for at in reversed(range(len(path.parts) - 1)) if _plain(path.parts[at]) in SPLITS), None)


def _plain(folder: str) -> str:
    """Return `train` for train2017 and Train."""
    return re.sub(r"[-_ ]?\d{4}$", "", folder.lower())


def _resembles_split(folder: str) -> bool:
    """Whether a folder's name resembles the name of a split, as training or testing do."""
    plain = _plain(folder)
    return plain.startswith(("train", "test", "valid")) and bool(get_close_matches(plain, SPLITS, cutoff=0.7))


def read_classes(source: FolderArchive | ZipArchive, listing: Listing) -> tuple[str, ...]:
    """Return the names of the classes in the order of their numbers. Raises DataError if no file names them."""
    for name in sorted(listing.files, key=lambda path: (path.count("/"), path)):
        if PurePosixPath(name).name not in NAMES:
            continue
        content = read_text(source, name)
        if name.endswith((".txt", ".names")):
            return checked_class_names([line.strip() for line in content.splitlines() if line.strip()], name)
        try:
            with bounded_recursion():
                value: Any = yaml.safe_load(content)["names"]
        except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
            raise DataError(f"{name}: has no key `names`; list the classes under that key") from None
        return checked_class_names(_class_list(value, name), name)
    raise DataError(f"the classes have no names: add {' or '.join(NAMES[:1] + NAMES[3:4])} to the data")


def read_keypoint_shape(source: FolderArchive | ZipArchive, listing: Listing) -> KeypointShape | None:
    """Return the keypoints that data.yaml declares, or None. Raises DataError if its values are not valid."""
    for name in sorted(listing.files, key=lambda path: (path.count("/"), path)):
        if PurePosixPath(name).name not in NAMES[:3]:
            continue
        try:
            with bounded_recursion():
                values: Any = yaml.safe_load(read_text(source, name))
        except (yaml.YAMLError, ValueError, RecursionError):
            return None  # read_classes has raised, or the names are in another file
        shape = values.get("kpt_shape") if isinstance(values, dict) else None
        if shape is None:
            return None
        are_counts = isinstance(shape, list) and len(shape) == 2 and all(type(each) is int for each in shape)
        if not are_counts or not 0 < shape[0] <= MAX_KEYPOINTS or shape[1] not in (2, 3):
            raise DataError(
                f"{name}: kpt_shape is {shortened_repr(shape)}; expected [keypoints, 3], or [keypoints, 2] without a "
                f"visibility, with 1 to {MAX_KEYPOINTS} keypoints"
            )
        return KeypointShape(_keypoints(values.get("kpt_names"), shape[0], name), shape[1])
    return None


def _keypoints(value: Any, count: int, where: str) -> Keypoints:
    """Return the named keypoints; without names, COCO's if there are as many, and otherwise numbers."""
    if isinstance(value, dict) and value:  # names by class, which a network has in common
        value = next(iter(value.values()))
    if value is None:
        return PERSON if count == len(PERSON.names) else Keypoints(tuple(map(str, range(count))))
    are_names = isinstance(value, list) and all(isinstance(each, str) and each.isprintable() for each in value)
    if not are_names or len({*value}) != count or len(value) != count or not all(value):
        raise DataError(f"{where}: kpt_names is {shortened_repr(value)}; expected {count} different names")
    return Keypoints(tuple(value), PERSON.skeleton if tuple(value) == PERSON.names else ())


def _class_list(value: Any, where: str) -> list[str]:
    """Return the classes in the value of `names`, which is a list or maps numbers to names."""
    expected = "expected a list of words, [cat, dog], or {0: cat, 1: dog} without gaps"
    if isinstance(value, dict):
        numbers = list(value)
        if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
            raise DataError(f"{where}: names has the keys {shortened_repr(numbers)}; {expected}")
        value = [value[number] for number in range(len(numbers))]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise DataError(f"{where}: names is {shortened_repr(value)}; {expected}; put quotes around numbers")
    return value


def _parse(lines: str, where: str, classes: tuple[str, ...], shape: KeypointShape | None) -> tuple[Box, ...]:
    """Return the objects of a label file, with their keypoints or polygons."""
    boxes = []
    for number, line in enumerate(lines.splitlines(), 1):
        words, place = line.split(), f"{where}, line {number}"
        if not words:
            continue
        keypoints = _parse_keypoints(words, place, shape) if shape is not None else ()
        is_polygon = shape is None and len(words) > MAX_WORDS
        try:
            kind, *numbers = int(words[0]), *map(float, words[1:] if is_polygon else words[1:BOX_WORDS])
        except ValueError:
            numbers = []
        if is_polygon and len(numbers) % 2:
            raise DataError(f"{place}: got {len(words)} numbers; a polygon is the class, and x and y of its points")
        if not numbers or (not is_polygon and len(numbers) != BOX_WORDS - 1):
            raise DataError(
                f"{place}: got {line.strip()[:80]!r}; expected class, centre x, centre y, width, height, or class and "
                "polygon"
            )
        if not 0 <= kind < len(classes):
            raise DataError(f"{place}: class {kind} has no name; {len(classes)} classes are named")
        invalid = next(
            (word for word, value in zip(words[1:], numbers, strict=False) if not math.isfinite(value)), None
        )
        if invalid is not None:
            raise DataError(f"{place}: got {invalid!r}; a box has finite numbers, as fractions of the picture")
        if is_polygon:
            sides = min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])
            boxes.append(Box(classes[kind], *sides, True, polygons=(tuple(numbers),)))
        else:
            x, y, width, height = numbers
            sides = x - width / 2, y - height / 2, x + width / 2, y + height / 2
            boxes.append(Box(classes[kind], *sides, True, keypoints))
    return tuple(boxes)


def _parse_keypoints(words: list[str], where: str, shape: KeypointShape) -> tuple[tuple[float, float, int], ...]:
    """Return x, y and visibility of each keypoint in a line."""
    count, columns = len(shape.keypoints.names), shape.columns
    if len(words) != BOX_WORDS + shape.words:
        raise DataError(
            f"{where}: got {len(words)} numbers; expected class, centre x, centre y, width, height and {count} "
            f"keypoints of {columns} numbers, {BOX_WORDS + shape.words} in all, as kpt_shape says"
        )
    try:
        numbers = [float(word) for word in words[BOX_WORDS:]]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise DataError(f"{where}: got {' '.join(words)[:80]!r}; keypoints are finite numbers")
    points = [numbers[start : start + columns] for start in range(0, len(numbers), columns)]
    if columns == 2:
        points = [[*point, 2 if any(point) else 0] for point in points]
    wrong = next((seen for *_, seen in points if seen not in (0, 1, 2)), None)
    if wrong is not None:
        raise DataError(f"{where}: the visibility of a keypoint is {wrong:g}; it is 0 (not labelled), 1 (hidden) or 2")
    return tuple((x, y, int(seen)) for x, y, seen in points)
