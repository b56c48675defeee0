"""Sounds in a folder or a zip, laid out as split/class/*.wav: mono, all at one rate, as float32 from -1 to 1.

Each becomes `seconds` long: a shorter one is filled up with silence behind, a longer one is cut, or, with
`lengths: exact`, either is an error. Nothing is resampled. All are held in memory: 64 KB for a second at 16 kHz.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from edgekit.data.paths import PathText, existing, stamp
from edgekit.data.types import Pools, Progress, SourceConfig
from edgekit.digests import digest
from edgekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np


TASKS = ("classification", "anomaly")


class Config(SourceConfig):
    """Options of a folder of sounds."""

    source: Literal["wav_folder"] = "wav_folder"
    path: PathText = Field(description="folder or .zip with split/class/sounds; ${VARIABLE} and ~ are filled in")
    rate_hz: int = Field(16_000, ge=1000, le=192_000, description="samples a second of every file")
    seconds: float = Field(1.0, gt=0, le=600, description="length of a sample, seconds")
    lengths: Literal["fit", "exact"] = Field("fit", description="of other lengths: fill up with silence or cut; refuse")

    @model_validator(mode="after")
    def _whole_samples(self) -> Config:
        if abs(self.seconds * self.rate_hz - round(self.seconds * self.rate_hz)) > 1e-6:
            raise ValueError(f"{self.seconds:g} s at {self.rate_hz} Hz are no whole number of samples; choose another")
        return self

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Samples of one sound."""
        return (round(self.seconds * self.rate_hz),)


def identity(config: Config) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it."""
    path = existing(config.path, "data.path")
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    return [digest([[str(file.relative_to(path)), *stamp(file)] for file in files])]


def read(config: Config, progress: Progress | None = None) -> Pools:
    """Pools of (n, samples) float32. With `limit`, only the sounds that it keeps are read."""
    import numpy as np

    from edgekit.data import layout, members
    from edgekit.data.splits import limited_indices
    from edgekit.data.types import Split

    path = existing(config.path, "data.path")
    with members.Folder(path) if path.is_dir() else members.Zip(path) as source:
        plan = layout.parse(source.listing(), path.name, layout.SOUNDS)
        kept = limited_indices(plan.labels, config.limit, config.split_seed)
        splits, done = {}, 0
        total = sum(len(kept.get(split, names)) for split, names in plan.names.items())
        for split, names in plan.names.items():
            chosen = kept.get(split, np.arange(len(names)))
            x = np.zeros((len(chosen), *config.raw_shape), dtype=np.float32)
            for row, place in enumerate(chosen):
                x[row] = _sound(names[place], source.read(names[place]), config)
                done += 1
                if progress:
                    progress(done, total)
            splits[split] = Split(x, plan.labels[split][chosen])
    given = (splits["train"], splits.get("validation"), splits.get("test"))
    return Pools(*given, plan.classes, "audio", plan.notes, config.rate_hz)


def _sound(name: str, content: bytes, config: Config) -> np.ndarray:
    import numpy as np

    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav

    (wanted,) = config.raw_shape
    try:
        found = wav.decode(name, content, config.rate_hz)
    except InputError as error:
        raise DataError(str(error)) from None
    if len(found) != wanted and config.lengths == "exact":
        raise DataError(
            f"{name}: {len(found)} samples, data.seconds asks for {wanted}; set data.lengths to fit, or run: "
            f"{wav.conversion(name, wanted, config.rate_hz)}"
        )
    return np.pad(found[:wanted], (0, max(0, wanted - len(found))))
