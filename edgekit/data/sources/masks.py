"""Pictures with masks in a folder or a zip. A mask is a PNG with the class of each pixel, or 255 if it is not known.

Every picture becomes uint8 (height, width, channels). By default, it is scaled to fit, with black bars at two sides if
its proportions differ. The bundle declares these steps as its input path, so the device prepares pictures with the same
code. Masks are scaled by nearest neighbours, and the bars have no class.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.core.paths import existing_path, file_stamps
from edgekit.data.source_options import PictureSourceConfig
from edgekit.data.types import Pools, ProgressCallback

TASKS = ("segmentation",)


class MasksConfig(PictureSourceConfig):
    """Options of a folder of pictures with masks."""

    source: Literal["masks"] = "masks"
    layout: Literal["folders", "voc"] = Field(
        "folders", description="how the masks are laid out: in the folders images and masks, or as in Pascal VOC"
    )
    max_bad_fraction: float = Field(
        0.01, ge=0, lt=1, description="largest share of unreadable pictures or masks that is skipped; more is an error"
    )


def identity(config: MasksConfig) -> list[object]:
    """Return the stamps of the zip or of every file of the folder, and the decoder's version."""
    return [digest(file_stamps(existing_path(config.path, "data.path"))), library_versions(("pillow",))]


def read(config: MasksConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays, with labels for the task segmentation."""
    from edgekit.data.labelled_pictures import pools_with_masks

    return pools_with_masks(config, progress)
