"""Pictures with boxes in a folder or a zip, annotated as Pascal VOC, COCO or YOLO has it, decoded once into a cache.

Every picture becomes uint8 (height, width, channels): scaled to fit, with black bars at two sides where its proportions
are others. This is the input path of the bundle, by the device's own code; boxes are moved by the same numbers.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.data.box_formats import MOST_BOXES
from edgekit.data.paths import existing, stamps
from edgekit.data.source_options import PicturesConfig
from edgekit.data.types import Pools, Progress

TASKS = ("detection",)


class Config(PicturesConfig):
    """Options of a folder of pictures with boxes."""

    source: Literal["boxes"] = "boxes"
    annotations: Literal["voc", "coco", "yolo"] = Field(
        description="format of the annotations: XML of Pascal VOC, JSON of COCO, or text of YOLO"
    )
    most_boxes: int = Field(MOST_BOXES, ge=1, le=MOST_BOXES, description="most boxes that a picture may have")


def identity(config: Config) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it; and the decoder."""
    return [digest(stamps(existing(config.path, "data.path"))), library_versions(("pillow",))]


def read(config: Config, progress: Progress | None = None) -> Pools:
    """Pools as memory-mapped arrays; labels as the task detection has them."""
    from edgekit.data.labelled_pictures import pools_with_boxes

    return pools_with_boxes(config, progress)
