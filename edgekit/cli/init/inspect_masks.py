"""Inspect pictures with masks: how they are laid out, and at which size a network should see them."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path, PurePosixPath

from PIL import Image

from edgekit.cli.init.findings import Findings
from edgekit.cli.init.inspect_boxes import STRIDE, Archive, look, sample_size
from edgekit.core.errors import DataError
from edgekit.data import box_formats, mask_layouts
from edgekit.data.image_cache import UNREADABLE

MASK_NAMES = {"mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations"}
FEW_COLOURS, MOST_INDICES = 32, 256
"""Of a folder that is called like masks, and of any that lies beside photographs."""
ALIKE = 0.9
"""Share of the names that pictures and masks have in common."""
MOST_SIBLINGS = 4
FEW_OPENED = 5
SAID = {"folders": "in images and masks", "voc": "as Pascal VOC has them"}


def layout(source: Archive) -> str | None:
    """The layout of pictures with masks, by the folders that they lie in; None where there are none."""
    found = {part for name in source.listing().files if _is_picture(name) for part in PurePosixPath(name).parts[:-1]}
    if {"JPEGImages", mask_layouts.OF_VOC} <= found:
        return "voc"
    return "folders" if {mask_layouts.IMAGES, mask_layouts.MASKS} <= found else None


def masks(path: Path, where: str, source: Archive, name: str) -> Findings:
    """Size and colour of most pictures, and the splits that lists or folders name."""
    listed = mask_layouts.read(name, source)
    looked = look(source, [pair.name for pair in listed.pairs])
    sizes, coloured = looked.sizes, looked.coloured
    if not sizes:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are whole")
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
        f"{where} of {len(listed.pairs):,} pictures with masks, {SAID[name]}, {told}, {colour}, seen as "
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
        except (*UNREADABLE, NotImplementedError, zipfile.BadZipFile):
            return math.inf
        if colours is None:
            return math.inf
        most = max(most, len(colours))
    return most


def _is_picture(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in box_formats.PICTURES and not PurePosixPath(name).name.startswith(".")
