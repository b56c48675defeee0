"""Pictures with boxes and masks of objects in a folder or a zip, annotated as in COCO or YOLO and decoded into a cache.

A mask has the pixels of one object, unlike those of the source `masks`, which have the class of each pixel. Pictures
are decoded as for the source `boxes`, and masks are transformed like the boxes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.data.sources.boxes import BoxSourceConfig, identity
from edgekit.data.types import Pools, ProgressCallback

__all__ = ["identity"]

TASKS = ("instance_masks",)


class InstanceMasksConfig(BoxSourceConfig):
    """Options of a folder of pictures with boxes and masks of objects."""

    source: Literal["instance_masks"] = "instance_masks"
    annotations: Literal["coco", "yolo"] = Field(
        description="format of the annotations: JSON of COCO with polygons or run lengths, or text of YOLO-seg"
    )


def read(config: InstanceMasksConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays, with labels for the task instance_masks."""
    from edgekit.data.labelled_pictures import pools_with_boxes

    return pools_with_boxes(config, progress, "masks")
