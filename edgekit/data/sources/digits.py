"""scikit-learn's handwritten digits: 1,797 real samples of 8×8 pixels, which are resized. The data come with
scikit-learn.

Origin: the test part of E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.data.types import Pools, ProgressCallback, SourceConfig, Split

if TYPE_CHECKING:
    import numpy as np


TASKS = ("classification", "embedding")


class DigitsConfig(SourceConfig):
    """Options of the digits."""

    source: Literal["digits"] = "digits"
    size: int = Field(32, ge=8, le=512, description="height and width of the images, pixels")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return (self.size, self.size, 1)


def identity(config: DigitsConfig) -> dict[str, str]:
    """Return the versions of scikit-learn and Pillow, which produce the samples."""
    return library_versions(("scikit-learn", "pillow"))


def read(config: DigitsConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of uint8 (n, size, size, 1). Grey levels 0–16 become 0–255 before Pillow's bilinear resizing."""
    import numpy as np
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    x = np.stack([_resized(image, config.size) for image in grey])[..., np.newaxis]
    classes = tuple(str(name) for name in bunch.target_names)
    return Pools(Split(x, bunch.target.astype(np.int64)), None, None, classes, "image")


def _resized(image: np.ndarray, size: int) -> np.ndarray:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))
