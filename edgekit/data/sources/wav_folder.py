"""Audio files in a folder or a zip, laid out as split/class/*.wav or listed in a table of file,label.

Every sound becomes mono float32 from -1 to 1 with one sample rate and length: channels are mixed, other rates are
resampled, shorter sounds are padded with silence, and of longer ones the first `seconds` are used. The options can make
each of these changes an error instead. The bundle declares these steps as its input path, so the device does the same,
with the same code. All sounds are in memory, and each takes 64 kB per second at 16 kHz.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, existing_path
from edgekit.data.source_options import AudioSourceConfig
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.inputs.wav import WavHeader

TASKS = ("classification", "embedding", "anomaly")


class WavFolderConfig(AudioSourceConfig):
    """Options of a folder of audio files."""

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
        """The steps for a file, as on the device."""
        (samples,) = self.raw_shape
        return self.decoding + ([input_path.windows_step(samples, samples, "silence")] if self.lengths == "fit" else [])


def identity(config: WavFolderConfig) -> list[object]:
    """Return the stamps of the zip or of every file of the folder."""
    from edgekit.data import folder_layout

    return [digest(folder_layout.content_stamps(existing_path(config.path, "data.path")))]


def read(config: WavFolderConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of (n, samples) float32. With `limit`, only the sounds that it keeps are read."""
    import numpy as np

    from edgekit.data import folder_layout
    from edgekit.data.splits import limited_indices
    from edgekit.data.types import Split

    path = existing_path(config.path, "data.path")
    with folder_layout.open_source(path) as source:
        layout = folder_layout.read_layout(source, path.name, folder_layout.SOUNDS)
        kept_indices = limited_indices(layout.labels, config.limit, config.split_seed)
        splits, done, changed = {}, 0, _ChangeCounter(config)
        total = sum(len(kept_indices.get(split, names)) for split, names in layout.names.items())
        for split, names in layout.names.items():
            indices = kept_indices.get(split, np.arange(len(names)))
            x = np.zeros((len(indices), *config.raw_shape), dtype=np.float32)
            for row, index in enumerate(indices):
                x[row] = _sound(names[index], source.read(names[index]), config, changed)
                done += 1
                if progress:
                    progress(done, total)
            splits[split] = Split(x, layout.labels[split][indices])
    three_splits = (splits["train"], splits.get("validation"), splits.get("test"))
    notes = (*layout.notes, *changed.notes())
    return Pools(*three_splits, layout.classes, "audio", notes, config.rate_hz, input_path=tuple(config.input_path))


class _ChangeCounter:
    """Counts the sounds that were mixed, resampled, padded or cut, for the notes."""

    def __init__(self, config: WavFolderConfig) -> None:
        self._config, self._counts, self._all = config, Counter[str](), 0

    def record(self, sound: WavHeader, samples: int) -> None:
        """Count a sound, given its header and its length at the target rate."""
        (length,) = self._config.raw_shape
        self._all += 1
        self._counts["mixed to mono"] += sound.channels > 1
        self._counts[f"resampled to {self._config.rate_hz} Hz"] += sound.rate_hz != self._config.rate_hz
        self._counts["padded with silence"] += samples < length
        self._counts["longer, of which the first window is used"] += samples > length

    def notes(self) -> list[str]:
        """Return a note if any sound was changed."""
        changes = [f"{count} {what}" for what, count in self._counts.items() if count]
        return [f"of {self._all} sounds: {', '.join(changes)}"] if changes else []


def _sound(name: str, content: bytes, config: WavFolderConfig, changes: _ChangeCounter) -> np.ndarray:
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav, windows

    (samples,) = config.raw_shape
    steps = config.input_path
    spec = wav.AudioSpec(samples, config.rate_hz, tuple(steps), "the config asks for")
    try:
        audio, header = wav.decode(name, content, spec)
    except InputError as error:
        raise DataError(f"{error}{_option(config)}") from None
    changes.record(header, len(audio))
    step = input_path.find_step(steps, "windows")
    return next(windows.cut_windows(audio, step)) if step else audio


def _option(config: WavFolderConfig) -> str:
    """Return the end of a message, which names the options that would accept the sound."""
    strict = [
        f"data.{option}: {other}"
        for option, other in (("lengths", "fit"), ("rates", "resample"), ("channels", "mix"))
        if getattr(config, option) == "exact"
    ]
    return f", or set {' and '.join(strict)}" if strict else ""
