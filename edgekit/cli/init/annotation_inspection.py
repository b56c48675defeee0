"""Inspect pictures with boxes or masks: their format or layout, and the size at which a network should see them."""

from __future__ import annotations

import io
import math
import posixpath
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from edgekit.cli.init import pretrained_network
from edgekit.cli.init.inspection import MAX_OPENED, Findings, is_grey
from edgekit.core.errors import DataError
from edgekit.data import archives, box_formats, mask_layouts
from edgekit.data.box_formats import Annotations, yolo
from edgekit.data.image_cache import UNREADABLE_ERRORS
from edgekit.runner import input_path
from edgekit.runner.inputs import picture as pictures

Archive = archives.FolderArchive | archives.ZipArchive
BOX_FORMAT_TITLES = {"voc": "Pascal VOC", "coco": "COCO", "yolo": "YOLO"}
STRIDE = 16
"""Stride of the detector's coarse grid. The sides of a sample are multiples of it."""
MAX_PIXELS = 192 * 144
"""Largest number of pixels of a sample, so that a first run takes only minutes on a CPU."""
MIN_BOX = 8
"""Side of a cell of the detector's fine grid in pixels. Objects that are smaller than a cell may have to share one."""
MAX_EXAMINED = 60
YOLO_LINE = re.compile(rb"\s*\d+(\s+[-+.\deE]+){4,}\s*")
"""The beginning of a YOLO label: a class and numbers."""
COCO_KEYS = (b'"images"', b'"annotations"', b'"categories"')


@dataclass(frozen=True)
class PictureSurvey:
    """Facts about the pictures: how often each (width, height) occurs, and whether any picture has colours."""

    sizes: Counter[tuple[int, int]]
    coloured: bool


def annotation_formats(source: Archive) -> list[str]:
    """Return the formats of the annotations beside the pictures, judging by their content.

    Raises
    ------
    DataError
        The labels are arranged as for YOLO but are not boxes.
    """
    listing = source.listing
    names = [name for name in listing.files if not any(part[:1] in (".", "_") for part in _path_parts(name))]
    picture_names = [name for name in names if PurePosixPath(name).suffix.lower() in box_formats.PICTURES]
    if not picture_names:
        return []
    formats = []
    if any(b"<annotation" in _read(source, name) for name in _some_with_suffix(names, ".xml")):
        formats.append("voc")
    if any(sum(key in _read(source, name) for key in COCO_KEYS) > 1 for name in _some_with_suffix(names, ".json")):
        formats.append("coco")
    texts = box_formats.with_lower_suffix(name for name in names if name.lower().endswith(".txt"))
    possible = (text for name in picture_names for text in yolo.label_paths(PurePosixPath(name))) if texts else ()
    labels = [texts[text] for text in possible if text in texts]
    if any(YOLO_LINE.match(_read(source, name)) for name in _spread(labels)):
        formats.append("yolo")
    elif not formats and any("labels" in PurePosixPath(name).parts for name in texts):
        label_path = yolo.label_paths(PurePosixPath(picture_names[0]))[0]
        raise DataError(
            f"the pictures have labels beside them, as in YOLO's layout, but none of them describes "
            f"boxes, for example {label_path} for {picture_names[0]}; each line must hold class, centre "
            f"x, centre y, width, height"
        )
    return formats


def inspect_boxes(
    path: Path, container: str, source: Archive, formats: Sequence[str], task: str | None = None
) -> Findings:
    """Return findings about pictures with boxes: their most common size, colours, and splits.

    If a trained backbone suits them, the network sees more pixels of each.
    """
    if len(formats) > 1:
        titles = " and ".join(BOX_FORMAT_TITLES[name] for name in formats)
        raise DataError(f"{path}: contains annotations of {titles}; keep one kind, or write the config by hand")
    annotations = box_formats.read_annotations(formats[0], source)
    total = sum(len(picture.boxes) for picture in annotations.pictures)
    if not total:
        raise DataError(f"{path}: {BOX_FORMAT_TITLES[formats[0]]} annotations without a single box; export them again")
    survey = survey_pictures(source, [picture.name for picture in annotations.pictures])
    if not survey.sizes:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are not damaged")
    size = survey.sizes.most_common(1)[0][0]
    samples = sum(picture.split == "train" for picture in annotations.pictures)
    large = sample_size(size, pretrained_network.DETECTION_PIXELS)
    starts_pretrained = pretrained_network.suits_boxes(task, samples, survey.coloured, large)
    width, height = large if starts_pretrained else sample_size(size)
    section = {
        "source": "boxes",
        "path": str(path),
        "annotations": formats[0],
        "height": height,
        "width": width,
        "channels": 3 if survey.coloured else 1,
    }
    sizes = f"{size[0]}×{size[1]}" + (" and other sizes" if len(survey.sizes) > 1 else "")
    object_size = _median_box(annotations, size, section)
    comments = {"height": f"the pictures are {sizes}; sides are multiples of {STRIDE}. {object_size}"}
    colour = "in colour" if survey.coloured else "grey"
    description = (
        f"{container} of {len(annotations.pictures):,} pictures with {total:,} boxes "
        f"({BOX_FORMAT_TITLES[formats[0]]}), {sizes}, {colour}, seen as {width}×{height}"
    )
    splits = frozenset(picture.split for picture in annotations.pictures)
    keypoints = len(annotations.keypoints.names) if annotations.keypoints else 0
    return Findings(
        section, description, splits, comments, classes=annotations.classes, task="detection", samples=samples,
        keypoints=keypoints, has_masks=annotations.has_masks, starts_pretrained=starts_pretrained,
    )  # fmt: skip


def sample_size(size: tuple[int, int], max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return the (width, height) of a sample: multiples of the stride that fit the picture's proportions best.

    It has at most `max_pixels` pixels. Neither is larger than the picture's own side, rounded up to the stride.
    """
    width, height = size
    largest = [max(STRIDE, -(-side // STRIDE) * STRIDE) for side in size]

    def rank(sample: tuple[int, int]) -> tuple[float, int]:
        scale = min(sample[0] / width, sample[1] / height)
        used = scale**2 * width * height / (sample[0] * sample[1])
        return round(min(scale, 1.0) * used, 9), -sample[0] * sample[1]

    sides = range(STRIDE, max_pixels // STRIDE + 1, STRIDE)
    fitting = [(x, y) for x in sides if x <= largest[0] for y in sides if y <= largest[1] and x * y <= max_pixels]
    return max(fitting, key=rank)


def _median_box(annotations: Annotations, size: tuple[int, int], section: dict[str, object]) -> str:
    """Describe in a sentence how large the objects appear to the network."""
    transform = input_path.picture_transform(size, {**section, "fit": "letterbox"})
    widths, heights = [], []
    for picture in annotations.pictures:
        for box in picture.boxes:
            scale = size if box.is_relative else (1, 1)
            widths.append((box.right - box.left) * scale[0] * transform.scale_x)
            heights.append((box.bottom - box.top) * scale[1] * transform.scale_y)
    width, height = (sorted(sides)[len(sides) // 2] for sides in (widths, heights))
    small = ": small, and more pixels would help" if min(width, height) < MIN_BOX else ""
    return f"In a sample the median box is {width:.0f}×{height:.0f}{small}"


def survey_pictures(source: Archive, names: Sequence[str]) -> PictureSurvey:
    """Survey some of the pictures, evenly spread.

    Unreadable ones are skipped, because the source reports them later.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    coloured = False
    steps = input_path.picture_steps((STRIDE, STRIDE, 3))
    for name in names[:: max(1, len(names) // MAX_OPENED)]:
        try:
            with Image.open(io.BytesIO(_read(source, name)), formats=pictures.FORMATS) as picture:
                sizes[pictures.upright_size(picture, steps)] += 1
                coloured = coloured or not is_grey(picture)
        except UNREADABLE_ERRORS:
            continue
    return PictureSurvey(sizes, coloured)


def _path_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a path, without underscores at the beginning of the file name.

    A part that begins with an underscore counts as hidden, but `_annotations.coco.json` must not.
    """
    path = PurePosixPath(name)
    return (*path.parent.parts, "." if path.name.startswith(".") else path.name.lstrip("_"))


def _some_with_suffix(names: Sequence[str], suffix: str) -> list[str]:
    return _spread([name for name in names if name.lower().endswith(suffix)])


def _spread(names: Sequence[str]) -> list[str]:
    return list(names[:: max(1, len(names) // MAX_EXAMINED)])


def _read(source: Archive, name: str) -> bytes:
    """Read a file. Return nothing if it cannot be read, because the source reports the fault later."""
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
        return b""


MASK_NAMES = {"mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations"}
MASK_COLOURS, MAX_COLOURS = 32, 256
"""Largest number of colours in a mask.

`MASK_COLOURS` is for a folder whose name is one of `MASK_NAMES`. `MAX_COLOURS` is for a folder of any other name, and
then the pictures in the folder beside it must have more colours.
"""
COMMON_NAMES_SHARE = 0.9
"""Share of names that pictures and masks must have in common."""
MAX_SIBLINGS = 4
COLOUR_SAMPLES = 5
MASK_LAYOUT_TITLES = {"folders": "in images and masks", "voc": "as Pascal VOC has them"}


def mask_layout(source: Archive) -> str | None:
    """Return the layout of pictures with masks from the names of their folders, or None."""
    folder_names = {part for name in source.listing.files if _is_picture(name) for part in name.split("/")[:-1]}
    if {"JPEGImages", mask_layouts.VOC_MASKS} <= folder_names:
        return "voc"
    return "folders" if {mask_layouts.IMAGES, mask_layouts.MASKS} <= folder_names else None


def inspect_masks(path: Path, container: str, source: Archive, name: str) -> Findings:
    """Return findings about pictures with masks: their most common size, colours, and splits."""
    layout = mask_layouts.read_mask_layout(name, source)
    survey = survey_pictures(source, [pair.name for pair in layout.pairs])
    sizes, coloured = survey.sizes, survey.coloured
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
    size_text = f"{size[0]}×{size[1]}" + (" and other sizes" if len(sizes) > 1 else "")
    comments = {"height": f"the pictures are {size_text}; sides are multiples of {STRIDE}"}
    colour = "in colour" if coloured else "grey"
    description = (
        f"{container} of {len(layout.pairs):,} pictures with masks, {MASK_LAYOUT_TITLES[name]}, {size_text}, {colour}, "
        f"seen as {width}×{height}"
    )
    splits = frozenset(pair.split for pair in layout.pairs)
    return Findings(section, description, splits, comments, classes=layout.classes, task="segmentation")


def refuse_unnamed_masks(path: Path, source: Archive) -> None:
    """Refuse a folder of pictures and a folder of their masks that are not called `images` and `masks`.

    Without this check, the two folders would be taken for two classes.

    Raises
    ------
    DataError
        Two sibling folders look like pictures and their masks.
    """
    picture_names = [name for name in source.listing.files if _is_picture(name)]
    for parent, folders in _sibling_folders(picture_names).items():
        for mask_folder, mask_files in folders.items():
            for picture_folder in (folder for folder in folders if folder != mask_folder):
                common = mask_files.keys() & folders[picture_folder].keys()
                if len(common) <= COMMON_NAMES_SHARE * max(len(mask_files), len(folders[picture_folder])):
                    continue
                examples = sorted(common)[:: max(1, len(common) // COLOUR_SAMPLES)]
                mask_colours = _max_colours(source, [mask_files[stem] for stem in examples])
                picture_colours = _max_colours(source, [folders[picture_folder][stem] for stem in examples])
                is_named_like_masks = mask_folder.lower() in MASK_NAMES and mask_colours <= MASK_COLOURS
                if mask_colours <= MAX_COLOURS and (picture_colours > MAX_COLOURS or is_named_like_masks):
                    parent_prefix = "" if parent == "." else f"{parent}/"
                    raise DataError(
                        f"{path}: {parent_prefix}{mask_folder} looks like masks of the pictures in "
                        f"{parent_prefix}{picture_folder}; rename the two to {mask_layouts.MASKS} and "
                        f"{mask_layouts.IMAGES}, or use --task classification"
                    )


def _sibling_folders(names: list[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Group the pictures by parent and sibling folder. Return only parents with a few sibling folders."""
    folders_by_parent: dict[str, dict[str, dict[str, str]]] = {}
    for name in names:
        *parts, file = name.split("/")
        stem = posixpath.splitext(file)[0]
        for depth, folder in enumerate(parts):
            files = folders_by_parent.setdefault("/".join(parts[:depth]) or ".", {}).setdefault(folder, {})
            files["/".join([*parts[depth + 1 :], stem])] = name
    return {parent: folders for parent, folders in folders_by_parent.items() if 1 < len(folders) <= MAX_SIBLINGS}


def _max_colours(source: Archive, names: list[str]) -> float:
    """Return the largest number of colours in one of the pictures, or infinity if one is not a readable PNG."""
    largest = 0
    for name in names:
        try:
            with Image.open(io.BytesIO(source.read(name)), formats=("PNG",)) as picture:
                colours = picture.getcolors(MAX_COLOURS)
        except (*UNREADABLE_ERRORS, NotImplementedError, zipfile.BadZipFile):
            return math.inf
        if colours is None:
            return math.inf
        largest = max(largest, len(colours))
    return largest


def _is_picture(name: str) -> bool:
    file = posixpath.basename(name)
    return posixpath.splitext(file)[1].lower() in box_formats.PICTURES and not file.startswith(".")
