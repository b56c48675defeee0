"""Pictures in a folder or a zip, laid out as split/class/*.jpg (.jpeg, .png, .webp) or listed in a table of file,label.

Every picture becomes uint8 (size, size, channels), decoded once into a cache. It is turned upright by its EXIF tag,
converted to grey or RGB and, if its size differs, brought to size as the options `fit` and `filter` say. The bundle
declares these steps as its input path, so the device prepares pictures with the same code
(`edgekit/runner/inputs/picture.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, existing_path
from edgekit.data.types import Pools, ProgressCallback, SourceConfig
from edgekit.runner import input_path

TASKS = ("classification", "embedding", "anomaly")


class ImageFolderConfig(SourceConfig):
    """Options of an image folder."""

    source: Literal["image_folder"] = "image_folder"
    path: PathText = Field(
        description="folder or .zip with pictures as SPLIT/CLASS/*, or a .csv of file,label beside them"
    )
    size: int = Field(32, ge=4, le=1024, description="height and width of the samples, pixels")
    channels: Literal[1, 3] = Field(3, description="colour channels of a sample: 1 is grey, 3 is RGB")
    fit: Literal["stretch", "crop", "letterbox"] = Field(
        "stretch", description="picture that is not square: stretch it, crop a square at its centre, or add bars"
    )
    share: float = Field(1.0, gt=0, le=1, description="side of the cropped square, as a share of the shorter side")
    fill: int = Field(0, ge=0, le=255, description="grey value of the bars: 0 is black")
    filter: Literal["bilinear", "bicubic", "sampled"] = Field(
        "bilinear", description="how pictures are scaled; sampled is bilinear without smoothing, as in OpenCV"
    )
    orientation: Literal["apply", "ignore"] = Field("apply", description="whether the EXIF orientation turns a picture")
    classes: list[str] | None = Field(
        None,
        min_length=1,
        description="all classes in the order of a model file's outputs, also those that no sample has; none: the "
        "classes of the data",
    )
    max_corrupt_fraction: float = Field(
        0.01, ge=0, lt=1, description="largest share of unreadable pictures before the source is refused"
    )
    cache: PathText | None = Field(None, description="folder for decoded samples; none: ~/.cache/edgekit")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return (self.size, self.size, self.channels)

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """The steps for a file, as on the device."""
        return input_path.picture_steps(
            self.raw_shape, self.fit, self.orientation, fill=self.fill, filter=self.filter, share=self.share
        )

    @property
    def class_order(self) -> tuple[str, ...] | None:
        """See `SourceConfig`."""
        return tuple(self.classes) if self.classes else None


def identity(config: ImageFolderConfig) -> list[object]:
    """Return the stamps of the zip or of every file of the folder, and the decoder's version."""
    from edgekit.data import folder_layout

    return [
        digest(folder_layout.content_stamps(existing_path(config.path, "data.path"))),
        library_versions(("pillow",)),
    ]


def read(config: ImageFolderConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays. With `limit`, only the pictures that it keeps are decoded."""
    from edgekit.data.image_cache import image_pools

    return image_pools(config, progress)
