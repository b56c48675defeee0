"""Pictures with masks in a folder or a zip: a PNG for each picture holds the class of each pixel, 255 for none.

Every picture becomes uint8 (height, width, channels): scaled to fit, with black bars at two sides where its proportions
are others. This is the input path of the bundle, by the device's own code. Masks are scaled by nearest neighbours, and
the bars are of no class.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.data.paths import PathText, existing, stamps
from edgekit.data.types import Pools, Progress, SourceConfig
from edgekit.runner import input_path

TASKS = ("segmentation",)


class Config(SourceConfig):
    """Options of a folder of pictures with masks."""

    source: Literal["masks"] = "masks"
    path: PathText = Field(description="folder or .zip with pictures and masks")
    layout: Literal["folders", "voc"] = Field(
        "folders", description="where they lie: in images and masks, or as Pascal VOC has them"
    )
    height: int = Field(160, ge=16, le=2048, description="height of the samples, pixels")
    width: int = Field(160, ge=16, le=2048, description="width of the samples, pixels")
    channels: Literal[1, 3] = Field(3, description="colour channels of a sample: 1 is grey, 3 is RGB")
    fit: Literal["letterbox", "stretch"] = Field(
        "letterbox", description="picture of other proportions: add black bars at two sides, or stretch it"
    )
    orientation: Literal["apply", "ignore"] = Field("apply", description="whether the EXIF orientation turns a picture")
    max_bad_fraction: float = Field(
        0.01, ge=0, lt=1, description="largest share of pictures that cannot be read with their masks, to skip"
    )
    cache: PathText | None = Field(None, description="folder for decoded samples; none: ~/.cache/edgekit")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return (self.height, self.width, self.channels)

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """What happens to a file, as the device will do it."""
        return input_path.pictures(self.raw_shape, self.fit, self.orientation)


def identity(config: Config) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it; and the decoder."""
    return [digest(stamps(existing(config.path, "data.path"))), library_versions(("pillow",))]


def read(config: Config, progress: Progress | None = None) -> Pools:
    """Pools as memory-mapped arrays; labels as the task segmentation has them."""
    from edgekit.data.labelled_pictures import pools_with_masks

    return pools_with_masks(config, progress)
