"""Pictures with masks, decoded into the cache: each with the labels that the task segmentation reads."""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np
from PIL import Image

from edgekit.core.hashing import digest
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import archives, image_cache, listed_pictures, mask_layouts
from edgekit.data.image_decoding import DECODER, UNREADABLE, reason
from edgekit.data.mask_layouts import Masked, Pair
from edgekit.data.paths import existing
from edgekit.data.types import Pools, Progress
from edgekit.runner import input_path, masks
from edgekit.runner.inputs import picture as pictures

FORMAT = 1
INDEXED = ("P", "L", "1")
"""Pillow's modes of a mask: indices into a palette, grey values, or two values."""
SCALED = ("L;2", "L;4")
"""What Pillow calls grey of so few bits, which it scales to 255."""

Source = archives.Folder | archives.Zip


class Options(Protocol):
    """The options of `edgekit.data.sources.masks`."""

    path: str
    layout: Any
    height: int
    width: int
    channels: Any
    max_bad_fraction: float
    cache: str | None
    limit: int | None
    split_seed: int

    @property
    def input_path(self) -> list[dict[str, Any]]: ...


def pools(config: Options, progress: Progress | None = None) -> Pools:
    """See `edgekit.data.sources.masks.read`."""
    path = existing(config.path, "data.path")
    with archives.Folder(path) if path.is_dir() else archives.Zip(path) as source:

        def fill(entry: image_cache.Entry) -> None:
            found = mask_layouts.read(config.layout, source)
            kept = listed_pictures.limited(found.pairs, config.limit, config.split_seed)
            _decode(source, Masked(tuple(kept), found.classes, found.notes), config, entry, progress)

        found = image_cache.cached(config.cache, _key(config, source), fill)
    return listed_pictures.pools(path.name, found, config.input_path)


def _key(config: Options, source: Source) -> str:
    return digest(
        {
            "format": [FORMAT, image_cache.FORMAT],
            "content": source.digest(),
            "layout": config.layout,
            "input_path": config.input_path,
            "most": config.max_bad_fraction,
            "code": code_digest(__name__, without=REPORTING),
            "limit": config.limit,
            "seed": None if config.limit is None else config.split_seed,
            "pillow": DECODER,
        }
    )


def _decode(
    source: Source, listed: Masked, config: Options, entry: image_cache.Entry, progress: Progress | None
) -> None:
    bad: list[str] = []
    total, done = len(listed.pairs), 0
    for split in listed_pictures.SPLITS:
        mine = [each for each in listed.pairs if each.split == split]
        if not mine:
            continue
        x = entry.array(f"{split}_x", (len(mine), config.height, config.width, config.channels))
        y = np.full((len(mine), config.height, config.width), masks.UNKNOWN, dtype=np.uint8)
        good = np.ones(len(mine), dtype=bool)
        for index, each in enumerate(mine):
            found = _sample(source, each, config, len(listed.classes))
            if isinstance(found, str):
                bad.append(f"{each.name} ({found})")
                good[index] = False
            else:
                x[index], y[index] = found
            done += 1
            if progress:
                progress(done, total)
        entry.keep(split, good, y)
    listed_pictures.refuse_many(bad, total, "pictures cannot be read with their masks", config.max_bad_fraction)
    notes = (*listed.notes, *listed_pictures.skipped(bad, "pictures that cannot be read with their masks"))
    entry.finish(listed.classes, notes, bad, total)


def _sample(source: Source, pair: Pair, config: Options, classes: int) -> tuple[np.ndarray, np.ndarray] | str:
    """The sample and its mask (height, width), or why there is none."""
    if pair.mask is None:
        return "no mask"
    try:
        with Image.open(io.BytesIO(source.read(pair.name)), formats=pictures.FORMATS) as image:
            problem = pictures.mismatch(image)
            if problem:
                return problem
            size, x = pictures.upright_size(image, config.input_path), pictures.decode(image, config.input_path)
    except UNREADABLE as error:
        return reason(error)
    try:
        with Image.open(io.BytesIO(source.read(pair.mask)), formats=("PNG",)) as drawn:
            problem = _no_mask(drawn, size)
            mask = np.zeros(0) if problem else np.asarray(drawn).astype(np.uint8)
    except UNREADABLE as error:
        return f"its mask: {reason(error)}"
    nameless = [index for index in np.unique(mask).tolist() if index >= classes and index != masks.UNKNOWN]
    if nameless:
        problem = f"index {nameless[0]} has no name; {classes} classes are named"
    return f"its mask: {problem}" if problem else (x, placed(mask, config.input_path))


def _no_mask(drawn: Image.Image, size: tuple[int, int]) -> str | None:
    """Why an opened Pillow image is no mask of a picture of (width, height)."""
    if drawn.mode not in INDEXED:
        return f"mode {drawn.mode}; save the index of each pixel's class, as a palette or grey PNG of 8 bits"
    if any(tile[-1] in SCALED for tile in getattr(drawn, "tile", ())):
        return "grey of less than 8 bits; save it with 8"
    if drawn.size != size:
        return f"{drawn.width}×{drawn.height} pixels, and the upright picture has {size[0]}×{size[1]}"
    return None


def placed(mask: np.ndarray, steps: list[dict[str, Any]]) -> np.ndarray:
    """A picture's mask (its height, its width) as that of the sample, by nearest neighbours; bars are unknown."""
    resize = input_path.find(steps, "resize_picture")
    assert resize is not None
    high, wide = mask.shape
    place = input_path.picture_transform((wide, high), resize)
    found = np.full((resize["height"], resize["width"]), masks.UNKNOWN, dtype=np.uint8)
    rows, columns = masks.nearest(place.height, high), masks.nearest(place.width, wide)
    inside = np.s_[place.top : place.top + place.height, place.left : place.left + place.width]
    found[inside] = mask[rows[:, None], columns]
    return found
