"""Pictures with boxes or masks, decoded into the cache: each with the labels that detection or segmentation reads."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import archives, box_formats, image_cache, mask_layouts
from edgekit.data.box_formats import MAX_BOXES, Box, Picture
from edgekit.data.image_cache import DECODER_VERSIONS, UNREADABLE_ERRORS, unreadable_reason
from edgekit.data.mask_layouts import MaskedPicture
from edgekit.data.paths import existing_path
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path, masks
from edgekit.runner.inputs import picture as pictures

SLACK = 1.0
"""Pixels that a box may lie outside its picture, for formats that count from 1: it is cut there."""
MIN_BOX_SIDE = 1.0
"""Of a box in a sample, pixels."""
MASK_MODES = ("P", "L", "1")
"""Pillow's modes of a mask: indices into a palette, grey values, or two values."""
SCALED_GREY_MODES = ("L;2", "L;4")
"""What Pillow calls grey of so few bits, which it scales to 255."""
SPLITS = ("train", "validation", "test")
FORMAT = 1
_SHOWN = 5

Source = archives.FolderArchive | archives.ZipArchive


class PictureOptions(Protocol):
    """The options that `edgekit.data.sources.boxes` and `edgekit.data.sources.masks` share."""

    path: str
    height: int
    width: int
    channels: Any
    max_bad_fraction: float
    cache: str | None
    limit: int | None
    split_seed: int

    @property
    def input_path(self) -> list[dict[str, Any]]: ...


class BoxOptions(PictureOptions, Protocol):
    """The options of `edgekit.data.sources.boxes`."""

    annotations: Any
    most_boxes: int


class MaskOptions(PictureOptions, Protocol):
    """The options of `edgekit.data.sources.masks`."""

    layout: Any


class _Listed(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def split(self) -> str: ...


Listed = TypeVar("Listed", bound=_Listed)
Fill = Callable[[Source, image_cache.CacheEntry], None]


def pools_with_boxes(config: BoxOptions, progress: ProgressCallback | None = None) -> Pools:
    """Pictures with their boxes, as `edgekit.data.sources.boxes.read` gives them.

    Raises
    ------
    DataError
        No picture is in train, none has a box, or more pictures or boxes are bad than `max_bad_fraction` allows.
    """

    def fill(source: Source, entry: image_cache.CacheEntry) -> None:
        listed = box_formats.read_annotations(config.annotations, source)
        kept = _limited(listed.pictures, config.limit, config.split_seed)
        _decode_boxes(source, replace(listed, pictures=tuple(kept)), config, entry, progress)

    return _pools(config, {"annotations": config.annotations, "most_boxes": config.most_boxes}, fill)


def pools_with_masks(config: MaskOptions, progress: ProgressCallback | None = None) -> Pools:
    """Pictures with their masks, as `edgekit.data.sources.masks.read` gives them.

    Raises
    ------
    DataError
        No picture is in train, or more than `max_bad_fraction` of the pictures cannot be read with their masks.
    """

    def fill(source: Source, entry: image_cache.CacheEntry) -> None:
        found = mask_layouts.read_mask_layout(config.layout, source)
        kept = _limited(found.pairs, config.limit, config.split_seed)
        _decode_masks(source, replace(found, pairs=tuple(kept)), config, entry, progress)

    return _pools(config, {"layout": config.layout}, fill)


def _pools(config: PictureOptions, options: dict[str, Any], fill: Fill) -> Pools:
    """What the cache holds under the key of these options; `fill` decodes it where it is not there."""
    path = existing_path(config.path, "data.path")
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        key = digest(
            {
                "format": [FORMAT, image_cache.FORMAT],
                "content": source.digest(),
                "options": options,
                "input_path": config.input_path,
                "most": config.max_bad_fraction,
                "code": code_digest(__name__, without=REPORTING),
                "limit": config.limit,
                "seed": None if config.limit is None else config.split_seed,
                "pillow": DECODER_VERSIONS,
            }
        )
        found = image_cache.load_or_create(config.cache, key, lambda entry: fill(source, entry))
    if "train" not in found.splits:
        raise DataError(f"{path.name}: no picture in train; name a list or a folder train")
    return Pools(
        found.splits["train"],
        found.splits.get("validation"),
        found.splits.get("test"),
        found.classes,
        "image",
        found.notes,
        input_path=tuple(config.input_path),
    )


def _limited(listed: Sequence[Listed], limit: int | None, seed: int) -> list[Listed]:
    """At most `limit` pictures of train, and of the other splits in proportion, one at least."""
    train = sum(each.split == "train" for each in listed)
    if limit is None or limit >= train:
        return list(listed)
    share, random = limit / train, np.random.default_rng(seed)
    kept: list[Listed] = []
    for split in SPLITS:
        mine = [each for each in listed if each.split == split]
        chosen = random.permutation(len(mine))[: max(1, round(share * len(mine)))]
        kept += [mine[place] for place in sorted(chosen)]
    return kept


def _decode(
    listed: Sequence[Listed],
    config: PictureOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
    unlabelled: Callable[[int], np.ndarray],
    sample: Callable[[Listed, np.ndarray], np.ndarray | str],
) -> list[str]:
    """Decode all pictures, split by split; return those that are left out, each with the reason.

    `unlabelled` makes the labels of so many pictures. `sample` decodes one picture and writes its labels into its row,
    or says why it cannot.
    """
    bad: list[str] = []
    done = 0
    for split in SPLITS:
        mine = [each for each in listed if each.split == split]
        if not mine:
            continue
        x = entry.array(f"{split}_x", (len(mine), config.height, config.width, config.channels))
        y, good = unlabelled(len(mine)), np.ones(len(mine), dtype=bool)
        for index, each in enumerate(mine):
            found = sample(each, y[index])
            if isinstance(found, str):
                bad.append(f"{each.name} ({found})")
                good[index] = False
            else:
                x[index] = found
            done += 1
            if progress:
                progress(done, len(listed))
        entry.finish_split(split, good, y)
    return bad


def _picture(
    source: Source, name: str, steps: Sequence[input_path.Step], stated: tuple[int, int] | None = None
) -> tuple[np.ndarray, tuple[int, int]] | str:
    """A picture as a sample, and its upright (width, height), which must be as `stated`; or why it cannot be read."""
    try:
        with Image.open(io.BytesIO(source.read(name)), formats=pictures.FORMATS) as image:
            problem = pictures.unsupported_reason(image)
            if problem:
                return problem
            size = pictures.upright_size(image, steps)
            if stated is not None and stated not in (size, image.size):
                return f"{size[0]}×{size[1]} pixels, and its annotations are for {stated[0]}×{stated[1]}"
            return pictures.decode(image, steps), size
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)


def _refuse_many(bad: Sequence[str], total: int, what: str, most: float) -> None:
    """DataError where more than the share `most` is bad."""
    if len(bad) > most * total:
        raise DataError(
            f"{len(bad)} of {total} {what}, more than data.max_bad_fraction {most}; repair them or raise it; the "
            f"first: {'; '.join(bad[:_SHOWN])}"
        )


def _skipped(bad: Sequence[str], what: str) -> list[str]:
    """A note, where anything was skipped."""
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return [f"skipped {len(bad)} {what}: {'; '.join(bad[:_SHOWN])}{more}"] if bad else []


def _decode_boxes(
    source: Source,
    listed: box_formats.Annotations,
    config: BoxOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    numbers = {name: float(number) for number, name in enumerate(listed.classes)}
    bad_boxes: list[str] = []

    def unlabelled(count: int) -> np.ndarray:
        y = np.full((count, 1 + config.most_boxes, 5), -1, dtype=np.float32)
        y[:, 0] = (-1, 0, 0, config.width, config.height)
        return y

    def sample(each: Picture, rows: np.ndarray) -> np.ndarray | str:
        found = _picture(source, each.name, config.input_path, each.size)
        if isinstance(found, str):
            return found
        x, size = found
        bad_boxes.extend(_write_boxes(rows, each, size, config, numbers))
        return x

    bad = _decode(listed.pictures, config, entry, progress, unlabelled, sample)
    total, boxes = len(listed.pictures), sum(len(each.boxes) for each in listed.pictures)
    _refuse_many(bad, total, "pictures cannot be read", config.max_bad_fraction)
    _refuse_many(bad_boxes, boxes, "boxes are empty or outside their pictures", config.max_bad_fraction)
    if not boxes:
        raise DataError(f"data.annotations: {config.annotations} annotations without a single box; export them again")
    notes = [
        *listed.notes,
        *_skipped(bad, "pictures that cannot be read"),
        *_skipped(bad_boxes, "boxes, empty or outside"),
    ]
    entry.finish(listed.classes, tuple(notes), bad, total)


def _write_boxes(
    rows: np.ndarray, picture: Picture, size: tuple[int, int], config: BoxOptions, numbers: dict[str, float]
) -> list[str]:
    """Write a picture's boxes into its rows (1 + most, 5), in the sample's pixels; return those that are none."""
    resize = input_path.find_step(config.input_path, "resize_picture")
    assert resize is not None
    place = input_path.picture_transform(size, resize)
    kept, bad = [], []
    for box in picture.boxes:
        sides = _clipped(box, size)
        if sides is None:
            bad.append(f"{picture.name}: {box.label} {box.left:g}, {box.top:g}, {box.right:g}, {box.bottom:g}")
            continue
        left, top, right, bottom = place.to_sample(sides)
        kept.append((numbers[box.label], left, top, right, bottom))
    if len(kept) > config.most_boxes:
        if config.most_boxes >= MAX_BOXES:
            raise DataError(
                f"{picture.name}: {len(kept)} boxes, and {MAX_BOXES} are the most that a detector can learn; remove "
                "the picture, or cut it into parts"
            )
        raise DataError(f"{picture.name}: {len(kept)} boxes, at most {config.most_boxes} asked; raise data.most_boxes")
    rows[1 : 1 + len(kept)] = np.array(kept, dtype=np.float32).reshape(-1, 5)
    return bad


def _clipped(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    """The box in the picture's pixels; None where it is empty, or outside by more than a pixel."""
    width, height = size
    across, down = (width, height) if box.is_relative else (1, 1)
    left, top, right, bottom = box.left * across, box.top * down, box.right * across, box.bottom * down
    outside = min(left, top) < -SLACK or right > width + SLACK or bottom > height + SLACK
    sides = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    too_thin = sides[2] - sides[0] < MIN_BOX_SIDE or sides[3] - sides[1] < MIN_BOX_SIDE
    return None if outside or too_thin else sides


def _decode_masks(
    source: Source,
    listed: mask_layouts.MaskDataset,
    config: MaskOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    def unlabelled(count: int) -> np.ndarray:
        return np.full((count, config.height, config.width), masks.UNKNOWN, dtype=np.uint8)

    def sample(each: MaskedPicture, row: np.ndarray) -> np.ndarray | str:
        if each.mask is None:
            return "no mask"
        found = _picture(source, each.name, config.input_path)
        if isinstance(found, str):
            return found
        x, size = found
        mask = _mask(source, each.mask, size, len(listed.classes))
        if isinstance(mask, str):
            return f"its mask: {mask}"
        row[:] = resize_mask(mask, config.input_path)
        return x

    bad, total = _decode(listed.pairs, config, entry, progress, unlabelled, sample), len(listed.pairs)
    _refuse_many(bad, total, "pictures cannot be read with their masks", config.max_bad_fraction)
    notes = (*listed.notes, *_skipped(bad, "pictures that cannot be read with their masks"))
    entry.finish(listed.classes, notes, bad, total)


def _mask(source: Source, name: str, size: tuple[int, int], classes: int) -> np.ndarray | str:
    """The class of each pixel (height, width) of an upright picture of (width, height), or why there is none."""
    try:
        with Image.open(io.BytesIO(source.read(name)), formats=("PNG",)) as drawn:
            problem = _no_mask(drawn, size)
            if problem:
                return problem
            mask = np.asarray(drawn).astype(np.uint8)
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)
    nameless = [index for index in np.unique(mask).tolist() if index >= classes and index != masks.UNKNOWN]
    return f"index {nameless[0]} has no name; {classes} classes are named" if nameless else mask


def _no_mask(drawn: Image.Image, size: tuple[int, int]) -> str | None:
    """Why an opened Pillow image is no mask of a picture of (width, height)."""
    if drawn.mode not in MASK_MODES:
        return f"mode {drawn.mode}; save the index of each pixel's class, as a palette or grey PNG of 8 bits"
    if any(tile[-1] in SCALED_GREY_MODES for tile in getattr(drawn, "tile", ())):
        return "grey of less than 8 bits; save it with 8"
    if drawn.size != size:
        return f"{drawn.width}×{drawn.height} pixels, and the upright picture has {size[0]}×{size[1]}"
    return None


def resize_mask(mask: np.ndarray, steps: list[dict[str, Any]]) -> np.ndarray:
    """A picture's mask (its height, its width) as that of the sample, by nearest neighbours; bars are unknown."""
    resize = input_path.find_step(steps, "resize_picture")
    assert resize is not None
    high, wide = mask.shape
    place = input_path.picture_transform((wide, high), resize)
    found = np.full((resize["height"], resize["width"]), masks.UNKNOWN, dtype=np.uint8)
    rows, columns = masks.nearest_indices(place.height, high), masks.nearest_indices(place.width, wide)
    inside = np.s_[place.top : place.top + place.height, place.left : place.left + place.width]
    found[inside] = mask[rows[:, None], columns]
    return found
