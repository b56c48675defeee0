"""YOLO text (Redmon et al. 2016 and its successors): beside each picture a .txt, one line for each thing in it.

A line is class, middle x, middle y, width, height, in shares of the picture. labels/… mirrors images/…, or both stand
in one folder. Classes are named in data.yaml (`names`) or classes.txt. A picture without a file has nothing in it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from edgekit.core.errors import DataError
from edgekit.data.box_formats import PICTURES, SPLITS, Annotations, Box, Picture, named_once

if TYPE_CHECKING:
    from edgekit.data.archives import Folder, Listing, Zip

MOST_WORDS = 6
"""Of a line: a class, four sides and, of a model's answers, a probability; polygons have more."""
NAMES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")


def read(source: Folder | Zip, listing: Listing) -> Annotations:
    """See the package."""
    names, files = classes(source, listing), set(listing.files)
    found = []
    for name in listing.files:
        path = PurePosixPath(name)
        if path.suffix.lower() not in PICTURES or path.name.startswith("."):
            continue
        labels = next((each for each in candidates(path) if each in files), None)
        boxes = _parse(source.read(labels), labels, names) if labels else ()
        found.append(Picture(name, split_of(path), boxes))
    return Annotations(tuple(found), names)


def candidates(path: PurePosixPath) -> list[str]:
    """Where the text of a picture may lie, by their names: mirrored in labels, or beside it."""
    beside = path.with_suffix(".txt")
    mirrored = PurePosixPath(*("labels" if part == "images" else part for part in beside.parts))
    return [str(mirrored), str(beside)]


def split_of(path: PurePosixPath) -> str:
    """What the folders above a file say; train where they say nothing."""
    return next((SPLITS[part] for part in reversed(path.parts[:-1]) if part in SPLITS), "train")


def classes(source: Folder | Zip, listing: Listing) -> tuple[str, ...]:
    """Their names, in the order of their numbers; DataError where no file names them."""
    for name in sorted(listing.files, key=lambda each: (each.count("/"), each)):
        if PurePosixPath(name).name not in NAMES:
            continue
        text = source.read(name).decode("utf-8", "replace")
        if name.endswith((".txt", ".names")):
            return named_once([line.strip() for line in text.splitlines() if line.strip()], name)
        try:
            found: Any = yaml.safe_load(text)["names"]
        except (yaml.YAMLError, KeyError, TypeError):
            raise DataError(f"{name}: no `names` in it; list the classes under that key") from None
        return named_once([found[number] for number in sorted(found)] if isinstance(found, dict) else list(found), name)
    raise DataError(f"the classes have no names: add {' or '.join(NAMES[:1] + NAMES[3:4])} to the data")


def _parse(data: bytes, where: str, classes: tuple[str, ...]) -> tuple[Box, ...]:
    boxes = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
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
        boxes.append(Box(classes[kind], x - width / 2, y - height / 2, x + width / 2, y + height / 2, True))
    return tuple(boxes)
