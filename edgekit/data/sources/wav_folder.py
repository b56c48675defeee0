"""Sounds in a folder or a zip, laid out as split/class/*.wav, or named by a table of file,label.

Every sound becomes mono float32 from -1 to 1, at one rate and length. Channels are mixed and other rates resampled. A
shorter sound is padded with silence, and of a longer one the first `seconds` are used. Each of these can be made an
error instead. What is done is the input path of the bundle, by the device's own code. All are held in memory: 64 KB for
a second at 16 kHz.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.data.paths import PathText, existing_path
from edgekit.data.source_options import AudioSourceConfig
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.inputs.wav import WavHeader

TASKS = ("classification", "embedding", "anomaly")


class WavFolderConfig(AudioSourceConfig):
    """Options of a folder of sounds."""

    source: Literal["wav_folder"] = "wav_folder"
    path: PathText = Field(
        description="folder or .zip with sounds as SPLIT/CLASS/*.wav, or a .csv of file,label beside them"
    )
    lengths: Literal["fit", "exact"] = Field(
        "fit", description="sound of another length: fill it with silence or cut it, or refuse it"
    )

    @model_validator(mode="after")
    def _whole_samples(self) -> WavFolderConfig:
        self.samples("seconds", self.seconds)
        return self

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """What happens to a file, as the device will do it."""
        (samples,) = self.raw_shape
        return self.decoding + ([input_path.windows_step(samples, samples, "silence")] if self.lengths == "fit" else [])


def identity(config: WavFolderConfig) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it."""
    from edgekit.data import folder_layout

    return [digest(folder_layout.content_stamps(existing_path(config.path, "data.path")))]


def read(config: WavFolderConfig, progress: ProgressCallback | None = None) -> Pools:
    """Pools of (n, samples) float32. With `limit`, only the sounds that it keeps are read."""
    import numpy as np

    from edgekit.data import folder_layout
    from edgekit.data.splits import limited_indices
    from edgekit.data.types import Split

    path = existing_path(config.path, "data.path")
    with folder_layout.open_source(path) as source:
        plan = folder_layout.read_layout(source, path.name, folder_layout.SOUNDS)
        kept = limited_indices(plan.labels, config.limit, config.split_seed)
        splits, done, changed = {}, 0, _Changed(config)
        total = sum(len(kept.get(split, names)) for split, names in plan.names.items())
        for split, names in plan.names.items():
            chosen = kept.get(split, np.arange(len(names)))
            x = np.zeros((len(chosen), *config.raw_shape), dtype=np.float32)
            for row, place in enumerate(chosen):
                x[row] = _sound(names[place], source.read(names[place]), config, changed)
                done += 1
                if progress:
                    progress(done, total)
            splits[split] = Split(x, plan.labels[split][chosen])
    given = (splits["train"], splits.get("validation"), splits.get("test"))
    notes = (*plan.notes, *changed.notes())
    return Pools(*given, plan.classes, "audio", notes, config.rate_hz, input_path=tuple(config.input_path))


class _Changed:
    """How many sounds were mixed, resampled, filled up and cut: what a reader of the notes should know."""

    def __init__(self, config: WavFolderConfig) -> None:
        self._config, self._counts, self._all = config, Counter[str](), 0

    def record(self, sound: WavHeader, samples: int) -> None:
        """A sound as its header describes it, and its length at the wanted rate."""
        (wanted,) = self._config.raw_shape
        self._all += 1
        self._counts["mixed to mono"] += sound.channels > 1
        self._counts[f"resampled to {self._config.rate_hz} Hz"] += sound.rate_hz != self._config.rate_hz
        self._counts["filled up with silence"] += samples < wanted
        self._counts["longer, of which the first window is taken"] += samples > wanted

    def notes(self) -> list[str]:
        """One line, where anything was changed."""
        changes = [f"{count} {what}" for what, count in self._counts.items() if count]
        return [f"of {self._all} sounds: {', '.join(changes)}"] if changes else []


def _sound(name: str, content: bytes, config: WavFolderConfig, changed: _Changed) -> np.ndarray:
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav, windows

    (samples,) = config.raw_shape
    steps = config.input_path
    wanted = wav.AudioSpec(samples, config.rate_hz, tuple(steps), "the config asks for")
    try:
        found, sound = wav.decode(name, content, wanted)
    except InputError as error:
        raise DataError(f"{error}{_option(config)}") from None
    changed.record(sound, len(found))
    step = input_path.find_step(steps, "windows")
    return next(windows.cut_windows(found, step)) if step else found


def _option(config: WavFolderConfig) -> str:
    """What in the config would let the sound in."""
    strict = [
        f"data.{option}: {other}"
        for option, other in (("lengths", "fit"), ("rates", "resample"), ("channels", "mix"))
        if getattr(config, option) == "exact"
    ]
    return f", or set {' and '.join(strict)}" if strict else ""
