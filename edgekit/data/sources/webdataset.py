"""Pictures, audio or vectors in WebDataset shards: tar files with `0001.jpg` beside `0001.cls` or `0001.json`.

Shards are read one after another, and their samples are decoded once into the cache. From there they are mapped, so a
data set can be larger than memory. A shard belongs to the split in its name, as in `train-000.tar` or `val-000.tar`;
if no name contains a split, all shards belong to train. Pictures become uint8 (size, size, channels), sounds mono
float32 of `seconds` at `rate_hz`, and vectors float32, from .npy. Compressed shards are refused, because samples are
found by their position.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from edgekit.core.cache_key import library_versions
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, file_stamp
from edgekit.data.types import Pools, ProgressCallback, SourceConfig
from edgekit.runner import input_path

TASKS = ("classification", "embedding", "anomaly")
PICTURE_OPTIONS = ("size", "channels", "fit", "orientation")
AUDIO_OPTIONS = ("rate_hz", "seconds")


class WebdatasetConfig(SourceConfig):
    """Options of WebDataset shards."""

    source: Literal["webdataset"] = "webdataset"
    path: PathText = Field(
        description="folder of tar shards, or a pattern of their names with numbers in braces, or with a star"
    )
    kind: Literal["image", "audio", "vector"] = Field(
        "image", description="what a sample is: a picture (.jpg, .jpeg, .png, .webp), a sound (.wav), a vector (.npy)"
    )
    member: str | None = Field(
        None, description="extension of the member that is the sample, as in left.jpg; none: by kind"
    )
    label: str = Field("cls", description="member that holds the label: cls, or json.KEY for a key of .json")
    classes: list[str] | None = Field(
        None, description="names of the labels 0, 1, …, in this order; none: the labels name themselves"
    )
    size: int = Field(32, ge=4, le=1024, description="height and width of pictures, pixels")
    channels: Literal[1, 3] = Field(3, description="colour channels of pictures: 1 is grey, 3 is RGB")
    fit: Literal["stretch", "crop"] = Field(
        "stretch", description="picture that is not square: stretch it, or crop the largest square at its centre"
    )
    orientation: Literal["apply", "ignore"] = Field("apply", description="whether the EXIF orientation turns a picture")
    rate_hz: int = Field(16_000, ge=1000, le=192_000, description="samples per second of sounds, after resampling")
    seconds: float = Field(1.0, gt=0, le=600, description="length of sounds, seconds; silence fills shorter ones")
    max_corrupt_fraction: float = Field(
        0.01, ge=0, lt=1, description="largest share of unreadable samples before the source is refused"
    )
    cache: PathText | None = Field(None, description="folder for decoded samples; none: ~/.cache/edgekit")

    @model_validator(mode="after")
    def _fitting(self) -> WebdatasetConfig:
        others = {"image": AUDIO_OPTIONS, "audio": PICTURE_OPTIONS, "vector": (*PICTURE_OPTIONS, *AUDIO_OPTIONS)}[
            self.kind
        ]
        for name in others:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, but kind is {self.kind}; leave the option out")
        samples = self.seconds * self.rate_hz
        if abs(samples - round(samples)) > 1e-6 or samples < 1:
            raise ValueError(
                f"seconds: {self.seconds:g} s at {self.rate_hz} Hz are not a whole number of samples; change one"
            )
        extension, dot, key = self.label.rpartition(".")
        if not self.label or (dot and (not key or not extension)):
            raise ValueError(f"label: got {self.label!r}; write cls, or json and a key, as in json.label")
        if self.classes is not None and (len(set(self.classes)) != len(self.classes) or not self.classes):
            raise ValueError(f"classes: got {self.classes}; name each class once")
        return self

    @property
    def raw_shape(self) -> tuple[int, ...] | None:
        """Height, width and channels of pictures, or the number of samples of a sound.

        None for vectors, because their shape depends on the shards.
        """
        if self.kind == "image":
            return (self.size, self.size, self.channels)
        return (round(self.seconds * self.rate_hz),) if self.kind == "audio" else None

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """The steps that a member goes through, as on the device.

        The list is empty for vectors, because their steps depend on the shards.
        """
        shape = self.raw_shape
        if shape is None:
            return []
        if self.kind == "image":
            return input_path.picture_steps(shape, self.fit, self.orientation)
        resampled = {"step": "resample", "rate_hz": self.rate_hz}
        cut = input_path.windows_step(shape[0], shape[0], "silence")
        return [{"step": "decode_wav"}, {"step": "mix_channels"}, resampled, cut]


def identity(config: WebdatasetConfig) -> list[object]:
    """Return the stamps of every shard, and the versions of the libraries that decode the samples."""
    from edgekit.data import shards

    files = shards.find_shards(config.path, "data.path")
    stamps = [[split, path.name, *file_stamp(path)] for split, paths in files.items() for path in paths]
    return [digest(stamps), library_versions(("pillow",))]


def read(config: WebdatasetConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as memory-mapped arrays. With `limit`, only the samples that it keeps are decoded."""
    from edgekit.data.shard_samples import shard_pools

    return shard_pools(config, progress)
