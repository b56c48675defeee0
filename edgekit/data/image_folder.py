"""Pictures in a folder or a zip, laid out as split/class/*.jpg (.jpeg, .png), decoded once into a cache.

Every picture becomes uint8 (size, size, channels): converted to grey or RGB, then, where its size differs,
resized by Pillow's bilinear filter without keeping the aspect ratio. Orientation tags are not applied.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.data.paths import PathText, existing, stamp
from edgekit.data.types import Pools, Progress, SourceConfig
from edgekit.digests import digest
from edgekit.keys import library_versions

TASKS = ("classification", "anomaly")


class Config(SourceConfig):
    """Options of an image folder."""

    source: Literal["image_folder"] = "image_folder"
    path: PathText = Field(description="folder or .zip with split/class/pictures; ${VARIABLE} and ~ are filled in")
    size: int = Field(32, ge=4, le=1024, description="height and width of the samples, pixels")
    channels: Literal[1, 3] = Field(3, description="1: grey, 3: RGB")
    max_corrupt_fraction: float = Field(0.01, ge=0, lt=1, description="largest share of unreadable pictures")
    cache: PathText | None = Field(None, description="folder of decoded samples; default ~/.cache/edgekit")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return (self.size, self.size, self.channels)


def identity(config: Config) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it; and the decoder."""
    path = existing(config.path, "data.path")
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    stamps = [[str(file.relative_to(path)), *stamp(file)] for file in files]
    return [digest(stamps), library_versions(("pillow",))]


def read(config: Config, progress: Progress | None = None) -> Pools:
    """Pools as memory-mapped arrays. With `limit`, only the pictures that it keeps are decoded."""
    from edgekit.data.pictures import pools

    return pools(config, progress)
