"""The options that every source of sounds has, and the steps of the input path that they mean."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from edgekit.data.types import SourceConfig


class SoundConfig(SourceConfig):
    """Rate and channels of sounds, whatever their files have."""

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
        """Samples of one sound."""
        return (self.samples("seconds", self.seconds),)

    @property
    def decoding(self) -> list[dict[str, Any]]:
        """What happens to a file before it is cut, as the device will do it."""
        return [
            {"step": "decode_wav"},
            *([{"step": "mix_channels"}] if self.channels == "mix" else []),
            *([{"step": "resample", "rate_hz": self.rate_hz}] if self.rates == "resample" else []),
        ]

    def samples(self, option: str, seconds: float) -> int:
        """So many seconds in samples; ValueError, with the option's name, where they are no whole number."""
        count = round(seconds * self.rate_hz)
        if abs(seconds * self.rate_hz - count) > 1e-6 or count < 1:
            raise ValueError(
                f"{option}: {seconds:g} s at {self.rate_hz} Hz are no whole number of samples; choose another"
            )
        return count
