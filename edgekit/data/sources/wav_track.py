"""Long recordings with label tracks: NAME.wav with NAME.txt beside it, of start, end and label, as Audacity exports it.

A recording is cut into windows of `seconds`, one every `stride_s`, as the device cuts it. Each window has the label
that covers most of it (`edgekit/data/label_track.py`). The windows of one stretch stay in one split, and no moment of a
recording stands in two splits. All are held in memory: 64 KB for a second at 16 kHz.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.tasks import anomaly
from edgekit.data.paths import PathText, existing, stamps
from edgekit.data.sound_options import SoundConfig
from edgekit.data.types import Pools, Progress
from edgekit.runner import input_path

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data.label_track import Window

TASKS = ("classification", "embedding", "anomaly")
TRACK = ".txt"


class Config(SoundConfig):
    """Options of recordings with label tracks."""

    source: Literal["wav_track"] = "wav_track"
    path: PathText = Field(description="a .wav, or a folder of them; each has its track NAME.txt beside it")
    stride_s: float | None = Field(
        None, gt=0, le=600, description="from the start of a window to that of the next, seconds; none: seconds"
    )
    least_share: float = Field(0.5, gt=0, le=1, description="share of a window that its label must cover")
    background: str | None = Field(
        None, min_length=1, description="class of the windows that no label touches; none: they are left out"
    )

    @model_validator(mode="after")
    def _whole_samples(self) -> Config:
        self.samples("seconds", self.seconds)
        self.samples("stride_s", self.stride_s or self.seconds)
        return self

    @model_validator(mode="after")
    def _is_normal(self) -> Config:
        if self.task == "anomaly" and self.background is not None and self.background.lower() not in anomaly.NORMAL:
            raise ValueError(
                f"background: got {self.background!r}, and every class but {' or '.join(anomaly.NORMAL)} is an "
                f"anomaly; write {anomaly.NORMAL[0]}, or leave it out"
            )
        return self

    @property
    def windows(self) -> dict[str, Any]:
        """How a recording is cut, as the device will do it."""
        return input_path.windows(self.raw_shape[0], self.samples("stride_s", self.stride_s or self.seconds))

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """What happens to a file, as the device will do it."""
        return [*self.decoding, self.windows]


def identity(config: Config) -> list[object]:
    """Every recording and its track, by what the file system says of them."""
    path = existing(config.path, "data.path")
    found = stamps(path) if path.is_dir() else [*stamps(path), *stamps(_track(path))]
    return [digest(found)]


def read(config: Config, progress: Progress | None = None) -> Pools:
    """One pool of (n, samples) float32 with the number of each window's stretch; it is divided by stretches."""
    import numpy as np

    from edgekit.data.types import Split

    recordings = _recordings(existing(config.path, "data.path"))
    parts: list[np.ndarray] = []
    labels: list[str] = []
    groups: list[int] = []
    starts: list[int] = []
    left_out: Counter[str] = Counter()
    for done, path in enumerate(recordings, 1):
        x, windows, why = _windows(path, config)
        behind = max(starts, default=0) + 2 * config.raw_shape[0] * bool(starts)  # recordings do not touch one another
        first = 1 + max(groups, default=-1)
        parts.append(x)
        labels += [each.label for each in windows]
        groups += [first + each.stretch for each in windows]
        starts += [behind + each.number * config.windows["stride"] for each in windows]
        left_out += why
        if progress:
            progress(done, len(recordings))
    if not labels:
        raise DataError(f"{recordings[0].name}: no window of {config.seconds:g} s has a label; lower data.seconds")
    classes = tuple(sorted(set(labels)))
    y = np.array([classes.index(label) for label in labels], np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    marks = (np.array(each, np.int64)[order] for each in (groups, starts))
    split = Split(np.concatenate(parts)[order], y[order], *marks)
    made = Pools(split, None, None, classes, "audio", _notes(len(y), left_out), config.rate_hz)
    return replace(made, input_path=tuple(config.input_path), background=config.background)


def _recordings(path: Path) -> list[Path]:
    """Every .wav; DataError where one has no track."""
    found = [path]
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix.lower() == ".wav" and each.is_file())
        found = [each for each in files if not any(part.startswith(".") for part in each.relative_to(path).parts)]
    elif path.suffix.lower() != ".wav":
        raise DataError(f"{path.name}: no .wav; name a recording, or a folder of recordings")
    if not found:
        raise DataError(f"{path.name}: holds no .wav; put the recordings there, each with its label track")
    for each in found:
        _track(each)
    return found


def _track(path: Path) -> Path:
    track = path.with_suffix(TRACK)
    if not track.is_file():
        raise DataError(
            f"{path.name}: its label track is missing; export it to {track.name} beside it, in Audacity by "
            "File, Export, Export Labels"
        )
    return track


def _windows(path: Path, config: Config) -> tuple[np.ndarray, Sequence[Window], Counter[str]]:
    """The windows (n, samples) of a recording that have a label, what they are, and how many others there are."""
    import numpy as np

    from edgekit.data import label_track
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav, windows

    track = _track(path)
    try:
        stretches, points = label_track.parse(track.name, track.read_bytes())
        wanted = wav.SoundSpec(config.raw_shape[0], config.rate_hz, tuple(config.input_path), "the config asks for")
        x, _ = wav.decode(path.name, path.read_bytes(), wanted)
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions") from None
    label_track.check_length(track.name, stretches, len(x) / config.rate_hz)
    step = config.windows
    found = label_track.marked(
        stretches,
        windows.count(len(x), step),
        step["length"],
        step["stride"],
        config.rate_hz,
        config.least_share,
        config.background,
    )
    left_out = found.left_out + Counter({"marks without a length": points})
    chosen = np.array([each.number for each in found.windows], np.int64)
    return windows.stacked(x, step)[chosen].reshape(-1, step["length"]), found.windows, left_out


def _notes(kept: int, left_out: Counter[str]) -> tuple[str, ...]:
    """What is in no window that is used."""
    if not left_out:
        return ()
    return (f"{kept:,} windows have a label; left out: " + ", ".join(f"{n:,} {why}" for why, n in left_out.items()),)
