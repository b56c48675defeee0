"""Options that several data sources share, and the steps of the input path that these options determine.

This module is outside `sources/`, because the digest of a source's code covers what the source imports, but no other
module in `sources/`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from edgekit.core.paths import PathText
from edgekit.data.types import SourceConfig
from edgekit.runner import input_path


class AudioSourceConfig(SourceConfig):
    """Options of the sources that read audio files and bring them to one sample rate and length, in mono."""

    rate_hz: int = Field(16_000, ge=1000, le=192_000, description="samples per second that a sound has after reading")
    seconds: float = Field(1.0, gt=0, le=600, description="length of a sample, seconds")
    rates: Literal["resample", "exact"] = Field(
        "resample", description="sound of another sample rate: resample it, or refuse it"
    )
    channels: Literal["mix", "exact"] = Field(
        "mix", description="sound with several channels: mix them to mono, or refuse it"
    )

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Number of samples of one sound."""
        return (self.samples("seconds", self.seconds),)

    @property
    def decoding(self) -> list[dict[str, Any]]:
        """The steps that a file goes through before it is cut, as on the device."""
        return [
            {"step": "decode_wav"},
            *([{"step": "mix_channels"}] if self.channels == "mix" else []),
            *([{"step": "resample", "rate_hz": self.rate_hz}] if self.rates == "resample" else []),
        ]

    def samples(self, option: str, seconds: float) -> int:
        """Convert seconds to samples. Raises ValueError with the option's name if the result is not an integer."""
        count = round(seconds * self.rate_hz)
        if abs(seconds * self.rate_hz - count) > 1e-6 or count < 1:
            raise ValueError(
                f"{option}: {seconds:g} s at {self.rate_hz} Hz are not a whole number of samples; change one"
            )
        return count


class PictureSourceConfig(SourceConfig):
    """Options that pictures with boxes and pictures with masks share."""

    path: PathText = Field(description="folder or .zip with the pictures, and their annotations or masks")
    height: int = Field(160, ge=16, le=2048, description="height of the samples, pixels")
    width: int = Field(160, ge=16, le=2048, description="width of the samples, pixels")
    channels: Literal[1, 3] = Field(3, description="colour channels of a sample: 1 is grey, 3 is RGB")
    fit: Literal["letterbox", "stretch"] = Field(
        "letterbox", description="picture of other proportions: add bars at two sides, or stretch it"
    )
    fill: int = Field(0, ge=0, le=255, description="grey value of the bars: 0 is black, and YOLO networks learn 114")
    filter: Literal["bilinear", "bicubic", "sampled"] = Field(
        "bilinear", description="how pictures are scaled; sampled is bilinear without smoothing, as in OpenCV"
    )
    orientation: Literal["apply", "ignore"] = Field("apply", description="whether the EXIF orientation turns a picture")
    max_bad_fraction: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="largest share of unreadable pictures, and of bad boxes, that is skipped; more is an error",
    )
    cache: PathText | None = Field(None, description="folder for decoded samples; none: ~/.cache/edgekit")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return (self.height, self.width, self.channels)

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """The steps that a file goes through, as on the device."""
        return input_path.picture_steps(self.raw_shape, self.fit, self.orientation, fill=self.fill, filter=self.filter)
