"""Pictures with boxes and keypoints in a folder or a zip, annotated as in COCO or YOLO and decoded into a cache.

The keypoints are points of an object that have names, such as the joints of a person. Pictures are decoded as for the
source `boxes`, and keypoints are transformed like the boxes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.errors import ConfigError
from edgekit.data.sources.boxes import BoxSourceConfig, identity
from edgekit.data.types import Pools, ProgressCallback

__all__ = ["identity"]

TASKS = ("keypoints",)


class KeypointsConfig(BoxSourceConfig):
    """Options of a folder of pictures with boxes and keypoints."""

    source: Literal["keypoints"] = "keypoints"
    annotations: Literal["coco", "yolo"] = Field(
        description="format of the annotations: JSON of COCO, or text of YOLO-pose"
    )
    skeleton: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = Field(
        None,
        description="pairs of keypoints, counted from 0, between which lines are drawn; none: those of the data",
    )


def read(config: KeypointsConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays, with labels for the task keypoints."""
    from edgekit.data.labelled_pictures import pools_with_boxes

    pools = pools_with_boxes(config, progress, extra="keypoints")
    assert pools.keypoints is not None
    if config.skeleton is None:
        return pools
    count = len(pools.keypoints.names)
    outside = next((line for line in config.skeleton if not all(0 <= end < count for end in line)), None)
    if outside is not None:
        raise ConfigError(f"data.skeleton: got {outside}; the {count} keypoints are counted from 0 to {count - 1}")
    lines = tuple((start, end) for start, end in config.skeleton)
    return replace(pools, keypoints=replace(pools.keypoints, skeleton=lines))
