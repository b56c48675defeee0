"""Inspect pictures with boxes or masks: their format or layout, and the size at which a network should see them."""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from edgekit.cli.init.inspect import MOST_OPENED, Findings, is_grey
from edgekit.core.errors import DataError
from edgekit.data import archives, box_formats, mask_layouts
from edgekit.data.box_formats import Annotations, yolo
from edgekit.data.image_cache import UNREADABLE_ERRORS
from edgekit.runner import input_path
from edgekit.runner.inputs import picture as pictures

Archive = archives.FolderArchive | archives.ZipArchive
SAID_OF_BOXES = {"voc": "Pascal VOC", "coco": "COCO", "yolo": "YOLO"}
STRIDE = 16
"""Of the coarse grid of the detector: sides of a sample are its multiples."""
MOST_PIXELS = 192 * 144
"""Of a sample: a first run should take minutes on a CPU."""
LEAST_BOX = 8
"""Pixels of the detector's fine grid: of smaller things several share a cell."""
LOOKED_AT = 60
LINE = re.compile(rb"\s*\d+(\s+[-+.\deE]+){4,}\s*")
"""The beginning of a YOLO text: a class, and numbers."""
KEYS = (b'"images"', b'"annotations"', b'"categories"')


@dataclass(frozen=True)
class Looked:
    """What the pictures themselves say: how often each (width, height) was seen, and whether one has colours."""

    sizes: Counter[tuple[int, int]]
    coloured: bool


def formats(source: Archive) -> list[str]:
    """The formats of annotations that lie with the pictures, by content; DataError for half a layout."""
    listing = source.listing()
    names = [name for name in listing.files if not any(part[:1] in (".", "_") for part in _folders(name))]
    shown = [name for name in names if PurePosixPath(name).suffix.lower() in box_formats.PICTURES]
    if not shown:
        return []
    found = []
    if any(b"<annotation" in _read(source, name) for name in _some(names, ".xml")):
        found.append("voc")
    if any(sum(key in _read(source, name) for key in KEYS) > 1 for name in _some(names, ".json")):
        found.append("coco")
    texts = box_formats.with_lower_suffix(name for name in names if name.lower().endswith(".txt"))
    labels = [texts[text] for name in shown for text in yolo.label_paths(PurePosixPath(name)) if text in texts]
    if any(LINE.match(_read(source, name)) for name in _spread(labels)):
        found.append("yolo")
    elif not found and any("labels" in PurePosixPath(name).parts for name in texts):
        wanted = yolo.label_paths(PurePosixPath(shown[0]))[0]
        raise DataError(
            f"labels lie beside pictures, as YOLO has it, and none is of boxes, such as {wanted} for {shown[0]}; "
            "each line holds class, centre x, centre y, width, height"
        )
    return found


def boxes(path: Path, where: str, source: Archive, found: Sequence[str]) -> Findings:
    """Size and colour of most pictures, and the splits that the annotations name."""
    if len(found) > 1:
        said = " and ".join(SAID_OF_BOXES[name] for name in found)
        raise DataError(f"{path}: annotations of {said} lie in it; keep one, or write the config by hand")
    listed = box_formats.read_annotations(found[0], source)
    total = sum(len(each.boxes) for each in listed.pictures)
    if not total:
        raise DataError(f"{path}: {SAID_OF_BOXES[found[0]]} annotations without a single box; export them again")
    looked = look(source, [each.name for each in listed.pictures])
    if not looked.sizes:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are not damaged")
    size = looked.sizes.most_common(1)[0][0]
    width, height = sample_size(size)
    section = {
        "source": "boxes",
        "path": str(path),
        "annotations": found[0],
        "height": height,
        "width": width,
        "channels": 3 if looked.coloured else 1,
    }
    sizes = f"{size[0]}×{size[1]}" + (" and other sizes" if len(looked.sizes) > 1 else "")
    comments = {
        "height": f"the pictures are {sizes}; sides are multiples of {STRIDE}. {_middle_box(listed, size, section)}"
    }
    colour = "in colour" if looked.coloured else "grey"
    words = (
        f"{where} of {len(listed.pictures):,} pictures with {total:,} boxes ({SAID_OF_BOXES[found[0]]}), {sizes}, "
        f"{colour}, seen as {width}×{height}"
    )
    splits = frozenset(each.split for each in listed.pictures)
    return Findings(section, words, splits, comments, classes=listed.classes, task="detection")


def sample_size(size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) of a sample: multiples of the stride, near to the picture's proportions and not larger."""
    width, height = size
    largest = [max(STRIDE, -(-side // STRIDE) * STRIDE) for side in size]

    def rank(sample: tuple[int, int]) -> tuple[float, int]:
        scale = min(sample[0] / width, sample[1] / height)
        used = scale**2 * width * height / (sample[0] * sample[1])
        return round(min(scale, 1.0) * used, 9), -sample[0] * sample[1]

    sides = range(STRIDE, MOST_PIXELS // STRIDE + 1, STRIDE)
    fitting = [(x, y) for x in sides if x <= largest[0] for y in sides if y <= largest[1] and x * y <= MOST_PIXELS]
    return max(fitting, key=rank)


def _middle_box(listed: Annotations, size: tuple[int, int], section: dict[str, object]) -> str:
    """How large things are for the network, as a sentence."""
    place = input_path.picture_transform(size, {**section, "fit": "letterbox"})
    across, down = [], []
    for each in listed.pictures:
        for box in each.boxes:
            scale = size if box.is_relative else (1, 1)
            across.append((box.right - box.left) * scale[0] * place.scale_x)
            down.append((box.bottom - box.top) * scale[1] * place.scale_y)
    wide, high = (sorted(sides)[len(sides) // 2] for sides in (across, down))
    small = ": small, and more pixels would help" if min(wide, high) < LEAST_BOX else ""
    return f"In a sample the middle box is {wide:.0f}×{high:.0f}{small}"


def look(source: Archive, names: Sequence[str]) -> Looked:
    """What some of the pictures are, evenly; the source counts what it cannot read, and names it."""
    sizes: Counter[tuple[int, int]] = Counter()
    coloured = False
    steps = input_path.picture_steps((STRIDE, STRIDE, 3))
    for name in names[:: max(1, len(names) // MOST_OPENED)]:
        try:
            with Image.open(io.BytesIO(_read(source, name)), formats=pictures.FORMATS) as picture:
                sizes[pictures.upright_size(picture, steps)] += 1
                coloured = coloured or not is_grey(picture)
        except UNREADABLE_ERRORS:
            continue
    return Looked(sizes, coloured)


def _folders(name: str) -> tuple[str, ...]:
    """The parts of a name that hide a file; `_annotations.coco.json` is none."""
    path = PurePosixPath(name)
    return (*path.parent.parts, "." if path.name.startswith(".") else path.name.lstrip("_"))


def _some(names: Sequence[str], suffix: str) -> list[str]:
    return _spread([name for name in names if name.lower().endswith(suffix)])


def _spread(names: Sequence[str]) -> list[str]:
    return list(names[:: max(1, len(names) // LOOKED_AT)])


def _read(source: Archive, name: str) -> bytes:
    """Nothing of what cannot be read: the source says what is wrong with it."""
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
        return b""


MASK_NAMES = {"mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations"}
FEW_COLOURS, MOST_INDICES = 32, 256
"""Of a folder that is called like masks, and of any that lies beside photographs."""
ALIKE = 0.9
"""Share of the names that pictures and masks have in common."""
MOST_SIBLINGS = 4
FEW_OPENED = 5
SAID_OF_MASKS = {"folders": "in images and masks", "voc": "as Pascal VOC has them"}


def layout(source: Archive) -> str | None:
    """The layout of pictures with masks, by the folders that they lie in; None where there are none."""
    found = {part for name in source.listing().files if _is_picture(name) for part in PurePosixPath(name).parts[:-1]}
    if {"JPEGImages", mask_layouts.VOC_MASKS} <= found:
        return "voc"
    return "folders" if {mask_layouts.IMAGES, mask_layouts.MASKS} <= found else None


def masks(path: Path, where: str, source: Archive, name: str) -> Findings:
    """Size and colour of most pictures, and the splits that lists or folders name."""
    listed = mask_layouts.read_mask_layout(name, source)
    looked = look(source, [pair.name for pair in listed.pairs])
    sizes, coloured = looked.sizes, looked.coloured
    if not sizes:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are not damaged")
    size = sizes.most_common(1)[0][0]
    width, height = sample_size(size)
    section = {
        "source": "masks",
        "path": str(path),
        "layout": name,
        "height": height,
        "width": width,
        "channels": 3 if coloured else 1,
    }
    told = f"{size[0]}×{size[1]}" + (" and other sizes" if len(sizes) > 1 else "")
    comments = {"height": f"the pictures are {told}; sides are multiples of {STRIDE}"}
    colour = "in colour" if coloured else "grey"
    words = (
        f"{where} of {len(listed.pairs):,} pictures with masks, {SAID_OF_MASKS[name]}, {told}, {colour}, seen as "
        f"{width}×{height}"
    )
    splits = frozenset(pair.split for pair in listed.pairs)
    return Findings(section, words, splits, comments, classes=listed.classes, task="segmentation")


def refuse_other_names(path: Path, source: Archive) -> None:
    """DataError for pictures and masks that lie side by side in folders of other names: no classes to tell apart."""
    shown = [name for name in source.listing().files if _is_picture(name)]
    for parent, folders in _siblings(shown).items():
        for masks, found in folders.items():
            for images in (each for each in folders if each != masks):
                alike = found.keys() & folders[images].keys()
                if len(alike) <= ALIKE * max(len(found), len(folders[images])):
                    continue
                some = sorted(alike)[:: max(1, len(alike) // FEW_OPENED)]
                drawn = _most_colours(source, [found[stem] for stem in some])
                shot = _most_colours(source, [folders[images][stem] for stem in some])
                named = masks.lower() in MASK_NAMES and drawn <= FEW_COLOURS
                if drawn <= MOST_INDICES and (shot > MOST_INDICES or named):
                    where = "" if parent == "." else f"{parent}/"
                    raise DataError(
                        f"{path}: {where}{masks} looks like masks of the pictures in {where}{images}; rename the two "
                        f"to {mask_layouts.MASKS} and {mask_layouts.IMAGES}, or say --task classification"
                    )


def _siblings(names: list[str]) -> dict[str, dict[str, dict[str, str]]]:
    """By the folder that holds them, a few sibling folders, each with its pictures by what tells them apart in it."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name in names:
        path = PurePosixPath(name)
        for at in range(len(path.parts) - 1):
            below = found.setdefault(str(PurePosixPath(*path.parts[:at])), {}).setdefault(path.parts[at], {})
            below[str(PurePosixPath(*path.parts[at + 1 :]).with_suffix(""))] = name
    return {parent: folders for parent, folders in found.items() if 1 < len(folders) <= MOST_SIBLINGS}


def _most_colours(source: Archive, names: list[str]) -> float:
    """The most colours that one of some pictures has; more than any mask's where one is no PNG, or cannot be read."""
    most = 0
    for name in names:
        try:
            with Image.open(io.BytesIO(source.read(name)), formats=("PNG",)) as picture:
                colours = picture.getcolors(MOST_INDICES)
        except (*UNREADABLE_ERRORS, NotImplementedError, zipfile.BadZipFile):
            return math.inf
        if colours is None:
            return math.inf
        most = max(most, len(colours))
    return most


def _is_picture(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in box_formats.PICTURES and not PurePosixPath(name).name.startswith(".")
