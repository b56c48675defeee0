"""Decode pictures with boxes, keypoints or masks into the cache, with labels in the form that their task needs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.paths import existing_path
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.core.tasks import instance_masks as mask_labels
from edgekit.core.tasks import keypoints as keypoint_labels
from edgekit.core.tasks.box_matches import BOX_FIELDS
from edgekit.data import archives, box_formats, image_cache, mask_layouts, object_masks
from edgekit.data.box_formats import MAX_BOXES, Box, Extra, Picture
from edgekit.data.image_cache import DECODER_VERSIONS, UNREADABLE_ERRORS, unreadable_reason
from edgekit.data.mask_layouts import MaskedPicture
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path, masks
from edgekit.runner.inputs import picture as pictures
from edgekit.runner.instance_masks import run_lengths

SLACK = 1.0
"""Pixels by which a box may extend beyond its picture, because some formats count from 1. The excess is cut off."""
MIN_BOX_SIDE = 1.0
"""Shortest side of a box in a sample, pixels."""
MASK_MODES = ("P", "L", "1")
"""Pillow's modes of masks: indices into a palette, grey values, or two values."""
SCALED_GREY_MODES = ("L;2", "L;4")
"""Pillow's names for grey of less than 8 bits. Pillow scales such values, so they no longer are numbers of classes."""
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
    """The options that the sources of boxes share, alone or with keypoints or masks."""

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


def pools_with_boxes(config: BoxOptions, progress: ProgressCallback | None = None, extra: Extra | None = None) -> Pools:
    """Return pictures with their boxes, for `edgekit.data.sources.boxes.read`, or with keypoints or masks, too.

    Raises
    ------
    DataError
        No picture is in train, none has a box, or more pictures or boxes are invalid than `max_bad_fraction` allows.
    """

    def fill(source: Source, entry: image_cache.CacheEntry) -> None:
        annotations = box_formats.read_annotations(config.annotations, source, extra)
        keypoints = annotations.keypoints if extra == "keypoints" else None
        selected = tuple(_limited(annotations.pictures, config.limit, config.split_seed))
        annotations = replace(annotations, pictures=selected, keypoints=keypoints, has_masks=extra == "masks")
        _decode_boxes(source, annotations, config, entry, progress)

    options = {"annotations": config.annotations, "most_boxes": config.most_boxes}
    return _pools(config, {**options, extra: True} if extra else options, fill)


def pools_with_masks(config: MaskOptions, progress: ProgressCallback | None = None) -> Pools:
    """Return pictures with their masks, for `edgekit.data.sources.masks.read`.

    Raises
    ------
    DataError
        No picture is in train, or more than `max_bad_fraction` of the pictures cannot be read with their masks.
    """

    def fill(source: Source, entry: image_cache.CacheEntry) -> None:
        dataset = mask_layouts.read_mask_layout(config.layout, source)
        selected = _limited(dataset.pairs, config.limit, config.split_seed)
        _decode_masks(source, replace(dataset, pairs=tuple(selected)), config, entry, progress)

    return _pools(config, {"layout": config.layout}, fill)


def _pools(config: PictureOptions, options: dict[str, Any], fill: Fill) -> Pools:
    """Return the pools for these options from the cache. If they are not there, `fill` decodes them."""
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
        images = image_cache.load_or_create(config.cache, key, lambda entry: fill(source, entry))
    if "train" not in images.splits:
        raise DataError(f"{path.name}: no picture in train; name a list or a folder train")
    return Pools(
        images.splits["train"],
        images.splits.get("validation"),
        images.splits.get("test"),
        images.classes,
        "image",
        images.notes,
        input_path=tuple(config.input_path),
        keypoints=images.keypoints,
    )


def _limited(listed: Sequence[Listed], limit: int | None, seed: int) -> list[Listed]:
    """Return at most `limit` pictures of train, and of each other split the same share, but at least one picture."""
    train = sum(each.split == "train" for each in listed)
    if limit is None or limit >= train:
        return list(listed)
    share, random = limit / train, np.random.default_rng(seed)
    selected: list[Listed] = []
    for split in SPLITS:
        of_split = [each for each in listed if each.split == split]
        chosen = random.permutation(len(of_split))[: max(1, round(share * len(of_split)))]
        selected += [of_split[place] for place in sorted(chosen)]
    return selected


def _decode(
    listed: Sequence[Listed],
    config: PictureOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
    unlabelled: Callable[[int], np.ndarray],
    sample: Callable[[Listed, Any], np.ndarray | str],
    finish: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = dict,
) -> list[str]:
    """Decode all pictures split by split, and return the pictures that were left out, each with the reason.

    `unlabelled` creates empty labels for a number of pictures. `sample` decodes one picture and writes its labels into
    the picture's row, or returns the reason why it cannot. `finish` returns the labels of all splits as stored.
    """
    bad: list[str] = []
    labels: dict[str, np.ndarray] = {}
    good: dict[str, np.ndarray] = {}
    done = 0
    for split in SPLITS:
        of_split = [each for each in listed if each.split == split]
        if not of_split:
            continue
        x = entry.array(f"{split}_x", (len(of_split), config.height, config.width, config.channels))
        y, is_good = unlabelled(len(of_split)), np.ones(len(of_split), dtype=bool)
        for index, each in enumerate(of_split):
            decoded = sample(each, y[index])
            if isinstance(decoded, str):
                bad.append(f"{each.name} ({decoded})")
                is_good[index] = False
            else:
                x[index] = decoded
            done += 1
            if progress:
                progress(done, len(listed))
        labels[split], good[split] = y, is_good
    for split, y in finish(labels).items():
        entry.finish_split(split, good[split], y)
    return bad


def _picture(
    source: Source, name: str, steps: Sequence[input_path.Step], stated: tuple[int, int] | None = None
) -> tuple[np.ndarray, tuple[int, int]] | str:
    """Decode a picture. Return the sample and its upright (width, height), or the reason why it cannot be read.

    If `stated` is given, the size must match it.
    """
    try:
        with Image.open(io.BytesIO(source.read(name)), formats=pictures.FORMATS) as image:
            problem = pictures.unsupported_reason(image)
            if problem:
                return problem
            size = pictures.upright_size(image, steps)
            if stated is not None and stated not in (size, image.size):
                return f"{size[0]}×{size[1]} pixels, but its annotations are for {stated[0]}×{stated[1]}"
            return pictures.decode(image, steps), size
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)


def _refuse_many(bad: Sequence[str], total: int, what: str, max_fraction: float) -> None:
    """Raise DataError if the share of invalid pictures or boxes is larger than allowed."""
    if len(bad) > max_fraction * total:
        raise DataError(
            f"{len(bad)} of {total} {what}, more than data.max_bad_fraction {max_fraction}; repair them or raise the "
            f"limit; the first: {'; '.join(bad[:_SHOWN])}"
        )


def _skipped(bad: Sequence[str], what: str) -> list[str]:
    """Return a note on the skipped pictures or boxes, or nothing if there are none."""
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return [f"skipped {len(bad)} {what}: {'; '.join(bad[:_SHOWN])}{more}"] if bad else []


def _decode_boxes(
    source: Source,
    annotations: box_formats.Annotations,
    config: BoxOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    numbers = {name: float(number) for number, name in enumerate(annotations.classes)}
    keypoints = annotations.keypoints
    columns = keypoint_labels.LABEL_FIELDS + 3 * len(keypoints.names) if keypoints else BOX_FIELDS
    bad_boxes: list[str] = []

    def unlabelled(count: int) -> np.ndarray:
        if annotations.has_masks:  # the longest row is known at the end
            lists: np.ndarray = np.frompyfunc(lambda _: [], 1, 1)(np.arange(count))
            return lists
        y = np.full((count, 1 + config.most_boxes, columns), -1, dtype=np.float32)
        y[:, 0] = 0
        y[:, 0, :BOX_FIELDS] = (-1, 0, 0, config.width, config.height)
        return y

    def sample(each: Picture, rows: Any) -> np.ndarray | str:
        decoded = _picture(source, each.name, config.input_path, each.size)
        if isinstance(decoded, str):
            return decoded
        x, size = decoded
        valid, bad = _labels(each, size, config, numbers)
        bad_boxes.extend(bad)
        if annotations.has_masks:
            rows.extend(valid)
        else:
            rows[1 : 1 + len(valid)] = np.array(valid, dtype=np.float32).reshape(-1, columns)
        return x

    def finish(labels: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return _with_equal_rows(labels, (config.width, config.height)) if annotations.has_masks else labels

    bad = _decode(annotations.pictures, config, entry, progress, unlabelled, sample, finish)
    total, boxes = len(annotations.pictures), sum(len(each.boxes) for each in annotations.pictures)
    _refuse_many(bad, total, "pictures cannot be read", config.max_bad_fraction)
    _refuse_many(bad_boxes, boxes, "boxes are empty or outside their pictures", config.max_bad_fraction)
    if not boxes:
        raise DataError(f"data.annotations: {config.annotations} annotations have no box; export them again")
    notes = [
        *annotations.notes,
        *_skipped(bad, "pictures that cannot be read"),
        *_skipped(bad_boxes, "boxes, empty or outside"),
    ]
    entry.finish(annotations.classes, tuple(notes), bad, total, keypoints)


def _with_equal_rows(labels: Mapping[str, np.ndarray], size: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return labels (n, 1 + most, 6 + runs) for lists of rows of different lengths, and samples of (width, height)."""
    pictures = [rows for split in labels.values() for rows in split]
    most = max(map(len, pictures), default=0)
    width = max((len(row) for rows in pictures for row in rows), default=mask_labels.LABEL_FIELDS + 1)
    result = {}
    for name, split in labels.items():
        y = np.zeros((len(split), 1 + max(1, most), width), dtype=np.float32)
        y[:, :, 0] = -1
        y[:, 0, 3:BOX_FIELDS] = size
        for picture, rows in zip(y, split, strict=True):
            for label, row in zip(picture[1:], rows, strict=False):
                label[: len(row)] = row
        result[name] = y
    return result


def _labels(
    picture: Picture, size: tuple[int, int], config: BoxOptions, numbers: dict[str, float]
) -> tuple[list[np.ndarray], list[str]]:
    """Return a picture's valid objects as rows of a label, in pixels of the sample, and its invalid ones in words."""
    resize = input_path.find_step(config.input_path, "resize_picture")
    assert resize is not None
    transform = input_path.picture_transform(size, resize)
    valid, bad = [], []
    for box in picture.boxes:
        sides = _clipped(box, size)
        if sides is None:
            bad.append(f"{picture.name}: {box.label} {box.left:g}, {box.top:g}, {box.right:g}, {box.bottom:g}")
            continue
        left, top, right, bottom = transform.to_sample(sides)
        row = [numbers[box.label], left, top, right, bottom]
        if box.keypoints:
            row += _keypoint_columns(box, size, transform, (right - left) * (bottom - top))
        if box.polygons or box.run_lengths:
            mask = _object_mask(box, size, config.input_path)
            if not mask.any():
                bad.append(f"{picture.name}: {box.label}, whose mask has no pixel in the sample")
                continue
            row += [float(box.is_crowd), *run_lengths(mask)]
        valid.append(np.array(row, dtype=np.float32))
    if len(valid) > config.most_boxes:
        if config.most_boxes >= MAX_BOXES:
            raise DataError(
                f"{picture.name}: {len(valid)} boxes, but a detector can learn at most {MAX_BOXES}; remove "
                "the picture, or cut it into parts"
            )
        raise DataError(f"{picture.name}: {len(valid)} boxes, but data.most_boxes is {config.most_boxes}; raise it")
    return valid, bad


def _object_mask(box: Box, size: tuple[int, int], steps: list[dict[str, Any]]) -> np.ndarray:
    """Return the pixels (height, width) bool of an object in the sample of a picture of (width, height)."""
    resize = input_path.find_step(steps, "resize_picture")
    assert resize is not None
    if box.run_lengths:
        mask = mask_labels.from_runs(np.array(box.run_lengths), size[::-1])
        return resize_mask(mask.astype(np.uint8), steps) == 1
    place = input_path.picture_transform(size, resize)
    scale = np.array([place.scale_x, place.scale_y]) * (size if box.is_relative else 1)
    polygons = (np.array(each).reshape(-1, 2) * scale + (place.left, place.top) for each in box.polygons)
    return object_masks.from_polygons(polygons, (resize["height"], resize["width"]))


def _keypoint_columns(
    box: Box, size: tuple[int, int], place: input_path.PictureTransform, box_area: float
) -> tuple[float, ...]:
    """Return the columns of a label after its box: area, crowd, and the keypoints in pixels of the sample."""
    across, down = size if box.is_relative else (1, 1)
    area = keypoint_labels.AREA_OF_BOX * box_area if box.area is None else box.area * place.scale_x * place.scale_y
    points = [
        (place.left + x * across * place.scale_x, place.top + y * down * place.scale_y, seen) if seen else (0, 0, 0)
        for x, y, seen in box.keypoints
    ]
    return area, float(box.is_crowd), *(value for point in points for value in point)


def _clipped(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    """Return the box in the picture's pixels, or None if it is empty or more than a pixel of it is outside."""
    width, height = size
    across, down = (width, height) if box.is_relative else (1, 1)
    left, top, right, bottom = box.left * across, box.top * down, box.right * across, box.bottom * down
    outside = min(left, top) < -SLACK or right > width + SLACK or bottom > height + SLACK
    sides = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    too_thin = sides[2] - sides[0] < MIN_BOX_SIDE or sides[3] - sides[1] < MIN_BOX_SIDE
    return None if outside or too_thin else sides


def _decode_masks(
    source: Source,
    dataset: mask_layouts.MaskDataset,
    config: MaskOptions,
    entry: image_cache.CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    def unlabelled(count: int) -> np.ndarray:
        return np.full((count, config.height, config.width), masks.UNKNOWN, dtype=np.uint8)

    def sample(each: MaskedPicture, row: np.ndarray) -> np.ndarray | str:
        if each.mask is None:
            return "no mask"
        decoded = _picture(source, each.name, config.input_path)
        if isinstance(decoded, str):
            return decoded
        x, size = decoded
        mask = _mask(source, each.mask, size, len(dataset.classes))
        if isinstance(mask, str):
            return f"its mask: {mask}"
        row[:] = resize_mask(mask, config.input_path)
        return x

    bad, total = _decode(dataset.pairs, config, entry, progress, unlabelled, sample), len(dataset.pairs)
    _refuse_many(bad, total, "pictures cannot be read with their masks", config.max_bad_fraction)
    notes = (*dataset.notes, *_skipped(bad, "pictures that cannot be read with their masks"))
    entry.finish(dataset.classes, notes, bad, total)


def _mask(source: Source, name: str, size: tuple[int, int], classes: int) -> np.ndarray | str:
    """Return the class of each pixel of a picture of (width, height), or the reason why the mask cannot be read."""
    try:
        with Image.open(io.BytesIO(source.read(name)), formats=("PNG",)) as drawn:
            problem = _mask_problem(drawn, size)
            if problem:
                return problem
            mask = np.asarray(drawn).astype(np.uint8)
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)
    unnamed = [index for index in np.unique(mask).tolist() if index >= classes and index != masks.UNKNOWN]
    return f"index {unnamed[0]} has no name; {classes} classes are named" if unnamed else mask


def _mask_problem(drawn: Image.Image, size: tuple[int, int]) -> str | None:
    """Return the reason why an opened Pillow image cannot be the mask of a picture of (width, height)."""
    if drawn.mode not in MASK_MODES:
        return f"mode {drawn.mode}; save the index of each pixel's class, as a palette or grey PNG of 8 bits"
    if any(tile[-1] in SCALED_GREY_MODES for tile in getattr(drawn, "tile", ())):
        return "grey of less than 8 bits; save it with 8"
    if drawn.size != size:
        return f"{drawn.width}×{drawn.height} pixels, but the upright picture has {size[0]}×{size[1]}"
    return None


def resize_mask(mask: np.ndarray, steps: list[dict[str, Any]]) -> np.ndarray:
    """Scale a mask (height, width) like its picture, with nearest neighbours.

    Pixels in the bars beside the picture have no class.
    """
    resize = input_path.find_step(steps, "resize_picture")
    assert resize is not None
    source_height, source_width = mask.shape
    transform = input_path.picture_transform((source_width, source_height), resize)
    resized = np.full((resize["height"], resize["width"]), masks.UNKNOWN, dtype=np.uint8)
    rows, columns = (
        masks.nearest_indices(transform.height, source_height),
        masks.nearest_indices(transform.width, source_width),
    )
    inside = np.s_[transform.top : transform.top + transform.height, transform.left : transform.left + transform.width]
    resized[inside] = mask[rows[:, None], columns]
    return resized
