"""Pictures with boxes in a folder or a zip, annotated as Pascal VOC, COCO or YOLO has it, decoded once into a cache.

Every picture becomes uint8 (height, width, channels): scaled to fit, with black bars at two sides where its proportions
are others. This is the input path of the bundle, by the device's own code; boxes are moved by the same numbers.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.data.box_formats import MAX_BOXES
from edgekit.data.paths import existing_path, file_stamps
from edgekit.data.source_options import PictureSourceConfig
from edgekit.data.types import Pools, ProgressCallback

TASKS = ("detection",)


class BoxesConfig(PictureSourceConfig):
    """Options of a folder of pictures with boxes."""

    source: Literal["boxes"] = "boxes"
    annotations: Literal["voc", "coco", "yolo"] = Field(
        description="format of the annotations: XML of Pascal VOC, JSON of COCO, or text of YOLO"
    )
    most_boxes: int = Field(MAX_BOXES, ge=1, le=MAX_BOXES, description="most boxes that a picture may have")


def identity(config: BoxesConfig) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it; and the decoder."""
    return [digest(file_stamps(existing_path(config.path, "data.path"))), library_versions(("pillow",))]


def read(config: BoxesConfig, progress: ProgressCallback | None = None) -> Pools:
    """Pools as memory-mapped arrays; labels as the task detection has them."""
    from edgekit.data.labelled_pictures import pools_with_boxes

    return pools_with_boxes(config, progress)
