"""YOLO text (Redmon et al. 2016 and its successors): beside each picture a .txt, one line for each thing in it.

A line is class, middle x, middle y, width, height, in shares of the picture. labels/… mirrors images/…, or both stand
in one folder. Classes are named in data.yaml (`names`) or classes.txt. A picture without a file has nothing in it. The
splits are train.txt, val.txt and test.txt where they list pictures, one a line, as Darknet, CVAT and Ultralytics write
them; else the folders' names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
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
    Picture,
    checked_class_names,
    is_hidden,
    read_text,
    with_lower_suffix,
)
from edgekit.runner.errors import bounded_recursion

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, Listing, ZipArchive

MOST_WORDS = 6
"""Of a line: a class, four sides and, of a model's answers, a probability; polygons have more."""
NAMES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")


def read(source: FolderArchive | ZipArchive, listing: Listing) -> Annotations:
    """See the package."""
    names, files = read_classes(source, listing), with_lower_suffix(listing.files)
    shown = [path for path in map(PurePosixPath, listing.files) if path.suffix.lower() in PICTURES]
    shown = [path for path in shown if not path.name.startswith(".")]
    lists = listed_splits(source, listing, shown)
    splits = [lists.get(str(path)) for path in shown] if lists else folder_splits(shown)
    if lists and "train" not in lists.values():
        splits = [split or "train" for split in splits]
    found: list[Picture] = []
    taken: set[str] = set()
    bare, unlisted = [], []
    for path, split in zip(shown, splits, strict=True):
        if split is None:
            unlisted.append(str(path))
            taken.update(files[each] for each in label_paths(path) if each in files)
            continue
        labels = next((files[each] for each in label_paths(path) if each in files), None)
        boxes = _parse(read_text(source, labels), labels, names) if labels else ()
        found.append(Picture(str(path), split, boxes))
        if labels:
            taken.add(labels)
        else:
            bare.append(str(path))
    unused = _without_picture(files.values(), taken, {str(path.parent) for path in shown})
    notes = [f"{len(unused)} label files without a picture; the first is {unused[0]}"] if unused else []
    if unlisted:
        notes.append(f"left out {len(unlisted)} pictures that no list of a split names; the first is {unlisted[0]}")
    if bare:
        notes.append(f"{len(bare)} pictures without a label file, so with nothing in them; the first is {bare[0]}")
    used = {box.label for picture in found for box in picture.boxes}
    if empty := [title for title in names if title not in used]:
        notes.append(f"left out {len(empty)} classes that no box has: {', '.join(empty[:MAX_LISTED])}")
    return Annotations(tuple(found), tuple(title for title in names if title in used), tuple(notes))


def listed_splits(
    source: FolderArchive | ZipArchive, listing: Listing, shown: Sequence[PurePosixPath]
) -> dict[str, str]:
    """The split of each picture that train.txt, val.txt or test.txt lists; empty without such lists.

    A line may be a path on another machine: the picture is the one that shares most folders with it. DataError for a
    picture that two splits list, and for a line that may mean several.
    """
    by_name: dict[str, list[PurePosixPath]] = {}
    for path in shown:
        by_name.setdefault(path.name, []).append(path)
    found: dict[str, str] = {}
    for name in sorted(listing.files):
        path = PurePosixPath(name)
        split = SPLITS.get(path.stem.lower()) if path.suffix.lower() == ".txt" and not is_hidden(path) else None
        lines = [line.strip() for line in read_text(source, name).splitlines() if line.strip()] if split else []
        if split is None or not all(line.lower().endswith(PICTURES) for line in lines):
            continue
        for line in lines:
            if (picture := _meant(line, by_name, name)) is None:
                continue
            if found.setdefault(picture, split) != split:
                raise DataError(
                    f"{name}: {line} is listed for {found[picture]} as well; a picture belongs to one split"
                )
    return found


def _meant(line: str, by_name: dict[str, list[PurePosixPath]], where: str) -> str | None:
    """The picture of a line in a list; None where none has its name."""
    wanted = PurePosixPath(line.replace("\\", "/")).parts

    def shared(path: PurePosixPath) -> int:
        pairs = zip(reversed(path.parts), reversed(wanted), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    named = sorted(by_name.get(wanted[-1], ()), key=shared, reverse=True)
    if len(named) > 1 and shared(named[0]) == shared(named[1]):
        raise DataError(f"{where}: {line} may be {named[0]} or {named[1]}; write its folder into the line")
    return str(named[0]) if named else None


def label_paths(path: PurePosixPath) -> list[str]:
    """Where the text of a picture may lie, by their names: mirrored in labels, or beside it."""
    beside = path.with_suffix(".txt")
    mirrored = PurePosixPath(*("labels" if part == "images" else part for part in beside.parts))
    return [str(mirrored), str(beside)]


def _without_picture(files: Iterable[str], taken: set[str], shown_in: set[str]) -> list[str]:
    """Texts where labels lie, in labels/ or beside pictures, that no picture has taken; classes.txt is none of them."""
    texts = [path for path in map(PurePosixPath, files) if path.suffix.lower() == ".txt" and not is_hidden(path)]
    texts = [path for path in texts if path.name not in NAMES and str(path) not in taken]
    texts = [path for path in texts if path.stem.lower() not in SPLITS]
    return [str(path) for path in texts if "labels" in path.parts[:-1] or str(path.parent) in shown_in]


def folder_splits(paths: Sequence[PurePosixPath]) -> list[str]:
    """What the nearest folder above each file says, in any case and with a year or without; train where none does.

    DataError for a folder beside those of splits that is called like none, or nearly like one.
    """
    found = [_stated(path) for path in paths]
    beside = {path.parts[:place] for path, place in zip(paths, found, strict=True) if place is not None}
    splits = []
    for path, place in zip(paths, found, strict=True):
        if place is None:
            odd = [at for at in range(len(path.parts) - 1) if path.parts[:at] in beside or _is_meant(path.parts[at])]
            if odd:
                name = path.parts[odd[0]]
                said = suggest(name.lower(), list(SPLITS))
                raise DataError(
                    f"{PurePosixPath(*path.parts[: odd[0] + 1])}: {name!r} is not the name of a split, {said}"
                )
        splits.append("train" if place is None else SPLITS[_plain(path.parts[place])])
    return splits


def _stated(path: PurePosixPath) -> int | None:
    """The place of the nearest folder above a file that is called like a split."""
    return next((at for at in reversed(range(len(path.parts) - 1)) if _plain(path.parts[at]) in SPLITS), None)


def _plain(folder: str) -> str:
    """train2017 and Train are train."""
    return re.sub(r"[-_ ]?\d{4}$", "", folder.lower())


def _is_meant(folder: str) -> bool:
    """Whether a folder without any of a split beside it is nearly called like one: training, testing."""
    plain = _plain(folder)
    return plain.startswith(("train", "test", "valid")) and bool(get_close_matches(plain, SPLITS, cutoff=0.7))


def read_classes(source: FolderArchive | ZipArchive, listing: Listing) -> tuple[str, ...]:
    """Their names, in the order of their numbers; DataError where no file names them."""
    for name in sorted(listing.files, key=lambda each: (each.count("/"), each)):
        if PurePosixPath(name).name not in NAMES:
            continue
        words = read_text(source, name)
        if name.endswith((".txt", ".names")):
            return checked_class_names([line.strip() for line in words.splitlines() if line.strip()], name)
        try:
            with bounded_recursion():
                found: Any = yaml.safe_load(words)["names"]
        except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
            raise DataError(f"{name}: no `names` in it; list the classes under that key") from None
        return checked_class_names(_listed(found, name), name)
    raise DataError(f"the classes have no names: add {' or '.join(NAMES[:1] + NAMES[3:4])} to the data")


def _listed(found: Any, where: str) -> list[str]:
    """The classes of `names`: a list, or a mapping of their numbers."""
    wanted = "needed a list of words, [cat, dog], or {0: cat, 1: dog} without gaps"
    if isinstance(found, dict):
        numbers = list(found)
        if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
            raise DataError(f"{where}: names has the keys {shortened_repr(numbers)}; {wanted}")
        found = [found[number] for number in range(len(numbers))]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise DataError(f"{where}: names is {shortened_repr(found)}; {wanted}; put quotes around numbers")
    return found


def _parse(lines: str, where: str, classes: tuple[str, ...]) -> tuple[Box, ...]:
    boxes = []
    for number, line in enumerate(lines.splitlines(), 1):
        if not line.strip():
            continue
        if len(line.split()) > MOST_WORDS:
            raise DataError(f"{where}, line {number}: {len(line.split())} numbers, as polygons have; export boxes")
        try:
            kind, x, y, width, height = int(line.split()[0]), *(float(word) for word in line.split()[1:5])
        except ValueError:
            raise DataError(
                f"{where}, line {number}: got {line.strip()[:80]!r}; needed class, middle x, middle y, width, height"
            ) from None
        if not 0 <= kind < len(classes):
            raise DataError(f"{where}, line {number}: class {kind} has no name; {len(classes)} classes are named")
        odd = next((word for word in line.split()[1:5] if not math.isfinite(float(word))), None)
        if odd is not None:
            raise DataError(f"{where}, line {number}: got {odd!r}; a box has finite numbers, shares of its picture")
        boxes.append(Box(classes[kind], x - width / 2, y - height / 2, x + width / 2, y + height / 2, True))
    return tuple(boxes)
