"""Pictures with boxes in a folder or a zip, annotated as in Pascal VOC, COCO or YOLO and decoded into a cache.

Every picture becomes uint8 (height, width, channels). By default, it is scaled to fit, with black bars at two sides if
its proportions differ. The bundle declares these steps as its input path, so the device prepares pictures with the same
code. Boxes are transformed like their pictures.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.core.paths import existing_path, file_stamps
from edgekit.data.box_formats import MAX_BOXES
from edgekit.data.source_options import PictureSourceConfig
from edgekit.data.types import Pools, ProgressCallback

TASKS = ("detection",)


class BoxSourceConfig(PictureSourceConfig):
    """Options that pictures with boxes share, with and without keypoints."""

    most_boxes: int = Field(MAX_BOXES, ge=1, le=MAX_BOXES, description="largest number of boxes in a picture")
    classes: list[str] | None = Field(
        None,
        min_length=1,
        description="all classes in the order of a model file's outputs, also those that no sample has; none: the "
        "classes of the data",
    )

    @property
    def class_order(self) -> tuple[str, ...] | None:
        """See `SourceConfig`."""
        return tuple(self.classes) if self.classes else None


class BoxesConfig(BoxSourceConfig):
    """Options of a folder of pictures with boxes."""

    source: Literal["boxes"] = "boxes"
    annotations: Literal["voc", "coco", "yolo"] = Field(
        description="format of the annotations: XML of Pascal VOC, JSON of COCO, or text of YOLO"
    )


def identity(config: BoxesConfig) -> list[object]:
    """Return the stamps of the zip or of every file of the folder, and the decoder's version."""
    return [digest(file_stamps(existing_path(config.path, "data.path"))), library_versions(("pillow",))]


def read(config: BoxesConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays, with labels for the task detection."""
    from edgekit.data.labelled_pictures import pools_with_boxes

    return pools_with_boxes(config, progress)
