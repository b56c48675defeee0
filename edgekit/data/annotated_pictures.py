"""Pictures with boxes, decoded into the cache: each with the labels that the task detection reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import archives, box_formats, image_cache, listed_pictures
from edgekit.data.box_formats import MOST_BOXES, Annotations, Box, Picture
from edgekit.data.image_decoding import DECODER, UNREADABLE, reason
from edgekit.data.paths import existing
from edgekit.data.types import Pools, Progress
from edgekit.runner import input_path
from edgekit.runner.inputs import picture as pictures

SLACK = 1.0
"""Pixels that a box may lie outside its picture, for formats that count from 1: it is cut there."""
LEAST_SIDE = 1.0
"""Of a box in a sample, pixels."""
FORMAT = 1


class Options(Protocol):
    """The options of `edgekit.data.sources.boxes`."""

    path: str
    annotations: Any
    height: int
    width: int
    channels: Any
    fit: Any
    orientation: Any
    most_boxes: int
    max_bad_fraction: float
    cache: str | None
    limit: int | None
    split_seed: int

    @property
    def input_path(self) -> list[dict[str, Any]]: ...


@dataclass
class _Skipped:
    """What was left out, and why: unreadable pictures, and boxes that are none."""

    pictures: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)


def pools(config: Options, progress: Progress | None = None) -> Pools:
    """See `edgekit.data.sources.boxes.read`."""
    path = existing(config.path, "data.path")
    with archives.Folder(path) if path.is_dir() else archives.Zip(path) as source:

        def fill(entry: image_cache.Entry) -> None:
            listed = box_formats.read(config.annotations, source)
            kept = listed_pictures.limited(listed.pictures, config.limit, config.split_seed)
            _decode(source, replace(listed, pictures=tuple(kept)), config, entry, progress)

        found = image_cache.cached(config.cache, _key(config, source), fill)
    return listed_pictures.pools(path.name, found, config.input_path)


def _key(config: Options, source: archives.Folder | archives.Zip) -> str:
    return digest(
        {
            "format": [FORMAT, image_cache.FORMAT],
            "content": source.digest(),
            "annotations": config.annotations,
            "input_path": config.input_path,
            "most": [config.most_boxes, config.max_bad_fraction],
            "code": code_digest(__name__, without=REPORTING),
            "limit": config.limit,
            "seed": None if config.limit is None else config.split_seed,
            "pillow": DECODER,
        }
    )


def _decode(
    source: archives.Folder | archives.Zip,
    listed: Annotations,
    config: Options,
    entry: image_cache.Entry,
    progress: Progress | None,
) -> None:
    skipped, done = _Skipped(), 0
    numbers = {name: float(number) for number, name in enumerate(listed.classes)}
    for split in listed_pictures.SPLITS:
        mine = [each for each in listed.pictures if each.split == split]
        if not mine:
            continue
        x = entry.array(f"{split}_x", (len(mine), config.height, config.width, config.channels))
        y = np.full((len(mine), 1 + config.most_boxes, 5), -1, dtype=np.float32)
        y[:, 0] = (-1, 0, 0, config.width, config.height)
        good = np.ones(len(mine), dtype=bool)
        for index, each in enumerate(mine):
            sample = _sample(source, each, config.input_path)
            if isinstance(sample, str):
                skipped.pictures.append(f"{each.name} ({sample})")
                good[index] = False
            else:
                x[index], size = sample
                _label(y[index], each, size, config, numbers, skipped)
            done += 1
            if progress:
                progress(done, len(listed.pictures))
        entry.keep(split, good, y)
    boxes = sum(len(each.boxes) for each in listed.pictures)
    most = config.max_bad_fraction
    listed_pictures.refuse_many(skipped.pictures, len(listed.pictures), "pictures cannot be read", most)
    listed_pictures.refuse_many(skipped.boxes, boxes, "boxes are empty or outside their pictures", most)
    if not boxes:
        raise DataError(f"data.annotations: {config.annotations} annotations without a single box; export them again")
    notes = [
        *listed.notes,
        *listed_pictures.skipped(skipped.pictures, "pictures that cannot be read"),
        *listed_pictures.skipped(skipped.boxes, "boxes, empty or outside"),
    ]
    entry.finish(listed.classes, tuple(notes), skipped.pictures, len(listed.pictures))


def _sample(
    source: archives.Folder | archives.Zip, picture: Picture, steps: Sequence[input_path.Step]
) -> tuple[np.ndarray, tuple[int, int]] | str:
    """The sample, and the upright picture's (width, height)."""
    try:
        with Image.open(io.BytesIO(source.read(picture.name)), formats=pictures.FORMATS) as image:
            problem = pictures.mismatch(image)
            if problem:
                return problem
            size = pictures.upright_size(image, steps)
            if picture.size is not None and picture.size not in (size, image.size):
                wide, high = picture.size
                return f"{size[0]}×{size[1]} pixels, and its annotations are for {wide}×{high}"
            return pictures.decode(image, steps), size
    except UNREADABLE as error:
        return reason(error)


def _label(
    rows: np.ndarray,
    picture: Picture,
    size: tuple[int, int],
    config: Options,
    numbers: dict[str, float],
    skipped: _Skipped,
) -> None:
    """Write a picture's boxes into its rows (1 + most, 5), in the sample's pixels."""
    resize = input_path.find(config.input_path, "resize_picture")
    assert resize is not None
    place = input_path.picture_transform(size, resize)
    kept = []
    for box in picture.boxes:
        sides = _clipped(box, size)
        if sides is None:
            skipped.boxes.append(
                f"{picture.name}: {box.label} {box.left:g}, {box.top:g}, {box.right:g}, {box.bottom:g}"
            )
            continue
        left, top, right, bottom = place.into_sample(sides)
        kept.append((numbers[box.label], left, top, right, bottom))
    if len(kept) > config.most_boxes:
        if config.most_boxes >= MOST_BOXES:
            raise DataError(
                f"{picture.name}: {len(kept)} boxes, and {MOST_BOXES} are the most that a detector can learn; remove "
                "the picture, or cut it into parts"
            )
        raise DataError(f"{picture.name}: {len(kept)} boxes, at most {config.most_boxes} asked; raise data.most_boxes")
    rows[1 : 1 + len(kept)] = np.array(kept, dtype=np.float32).reshape(-1, 5)


def _clipped(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    """The box in the picture's pixels; None where it is empty, or outside by more than a pixel."""
    width, height = size
    across, down = (width, height) if box.is_relative else (1, 1)
    left, top, right, bottom = box.left * across, box.top * down, box.right * across, box.bottom * down
    outside = min(left, top) < -SLACK or right > width + SLACK or bottom > height + SLACK
    sides = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    too_thin = sides[2] - sides[0] < LEAST_SIDE or sides[3] - sides[1] < LEAST_SIDE
    return None if outside or too_thin else sides
