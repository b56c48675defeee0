"""Find pictures, their masks and the names of the classes, in folders with fixed names or in the layout of Pascal VOC.

`folders`: images/SPLIT/NAME.jpg, masks/SPLIT/NAME.png, and the classes in data.yaml (`names`) or classes.txt. `voc`
(Everingham et al. 2010): JPEGImages, SegmentationClass, and lists in ImageSets/Segmentation. Without lists, every
picture with a mask is in train. If no file names the classes, they are VOC's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edgekit.core.errors import DataError
from edgekit.data.archives import Listing
from edgekit.data.box_formats import PICTURES, linked_folder_notes, unique_pictures, voc, with_lower_suffix, yolo

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, ZipArchive

IMAGES, MASKS = "images", "masks"
VOC_MASKS, LISTS = "SegmentationClass", "Segmentation"
MASK = ".png"
VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


@dataclass(frozen=True)
class MaskedPicture:
    """A picture's name in the folder, and the name of its mask, or None if it has no mask."""

    name: str
    mask: str | None
    split: str


@dataclass(frozen=True)
class MaskDataset:
    """Pictures in the order of their names, and classes in the order of their numbers."""

    pairs: tuple[MaskedPicture, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_mask_layout(layout: str, source: FolderArchive | ZipArchive) -> MaskDataset:
    """Find pictures and masks in a folder or a zip. Raises DataError if no picture has a mask."""
    listing = source.listing
    pictures_with_masks = tuple(_voc(source, listing) if layout == "voc" else _folders(listing))
    if not any(pair.mask for pair in pictures_with_masks):
        link_notes = "".join(f"; {each}" for each in linked_folder_notes(listing))
        expected = f"{VOC_MASKS}/NAME.png" if layout == "voc" else "images/SPLIT/NAME.jpg and masks/SPLIT/NAME.png"
        raise DataError(f"data.path: no picture in it has a mask; expected {expected}; check data.layout{link_notes}")
    used = {pair.mask for pair in pictures_with_masks}
    folder = VOC_MASKS if layout == "voc" else MASKS
    unused = [name for name in listing.files if _is_mask(name, folder) and name not in used]
    notes = (f"{len(unused)} masks without a picture, or in no list; the first is {unused[0]}",) if unused else ()
    return MaskDataset(pictures_with_masks, _classes(layout, source, listing), (*notes, *linked_folder_notes(listing)))


def _folders(listing: Listing) -> Iterator[MaskedPicture]:
    files = with_lower_suffix(listing.files)
    pictures_in_images = [path for path in map(PurePosixPath, listing.files) if path.suffix.lower() in PICTURES]
    pictures_in_images = [
        path for path in pictures_in_images if IMAGES in path.parts[:-1] and not path.name.startswith(".")
    ]
    owners: dict[str, PurePosixPath] = {}
    for path, split in zip(pictures_in_images, yolo.folder_splits(pictures_in_images), strict=True):
        mirrored = PurePosixPath(*(MASKS if part == IMAGES else part for part in path.parts)).with_suffix(MASK)
        mask = files.get(str(mirrored))
        if mask is not None and owners.setdefault(mask, path) != path:
            raise DataError(f"{owners[mask]} and {path}: both belong to the mask {mask}; rename or remove one of them")
        yield MaskedPicture(str(path), mask, split)


def _voc(source: FolderArchive | ZipArchive, listing: Listing) -> Iterator[MaskedPicture]:
    masks = {PurePosixPath(name).stem: name for name in listing.files if _is_mask(name, VOC_MASKS)}
    others = tuple(name for name in listing.files if "JPEGImages" in PurePosixPath(name).parts)
    by_stem, splits = unique_pictures(Listing(others, ())), voc.listed_splits(source, listing, LISTS)
    for stem in sorted(splits or masks):
        if stem not in by_stem:
            raise DataError(f"{stem}: there is no picture of that name in JPEGImages; add it, or remove its mask")
        yield MaskedPicture(by_stem[stem], masks.get(stem), splits.get(stem, "train"))


def _is_mask(name: str, folder: str) -> bool:
    path = PurePosixPath(name)
    return folder in path.parts[:-1] and path.suffix.lower() == MASK and not path.name.startswith(".")


def _classes(layout: str, source: FolderArchive | ZipArchive, listing: Listing) -> tuple[str, ...]:
    named = any(PurePosixPath(name).name in yolo.NAMES for name in listing.files)
    return VOC_CLASSES if layout == "voc" and not named else yolo.read_classes(source, listing)
