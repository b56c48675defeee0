"""Inspect pictures with masks: how they are laid out, and at which size a network should see them."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from PIL import Image

from edgekit.cli.init.findings import Findings
from edgekit.cli.init.inspect import MOST_OPENED, is_grey
from edgekit.cli.init.inspect_boxes import STRIDE, Archive, sample_size
from edgekit.core.errors import DataError
from edgekit.data import box_formats, mask_layouts
from edgekit.data.image_decoding import UNREADABLE
from edgekit.runner import input_path
from edgekit.runner.inputs import picture as pictures

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
    sizes: Counter[tuple[int, int]] = Counter()
    coloured = False
    for picture in _opened(source, [pair.name for pair in listed.pairs]):
        sizes[pictures.upright_size(picture, input_path.pictures((STRIDE, STRIDE, 3)))] += 1
        coloured = coloured or not is_grey(picture)
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


def _is_picture(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in box_formats.PICTURES and not PurePosixPath(name).name.startswith(".")


def _opened(source: Archive, names: list[str]) -> Iterator[Image.Image]:
    """Some of the pictures, evenly; the source counts what it cannot read, and names it."""
    for name in names[:: max(1, len(names) // MOST_OPENED)]:
        try:
            with Image.open(io.BytesIO(source.read(name)), formats=pictures.FORMATS) as picture:
                yield picture
        except UNREADABLE:
            continue
