"""Long recordings with label tracks: NAME.wav with NAME.txt beside it, of start, end and label, as Audacity exports it.

A recording is cut into windows of `seconds`, one every `stride_s`, as the device cuts it. Each window has the label
that covers most of it. The windows of one stretch stay in one split, and no moment of a recording stands in two splits.
All are held in memory: 64 KB for a second at 16 kHz.

A label track: which stretches of a recording are what, as Audacity exports it, start, end and label in a line.

Seconds from the recording's start, with tabs between. A window belongs to the label that covers enough of it. Windows
of one stretch stay together, and no moment stands in windows of two stretches: what would share one is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.tasks import anomaly
from edgekit.data.paths import PathText, existing_path, file_stamps
from edgekit.data.source_options import AudioSourceConfig
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path

if TYPE_CHECKING:
    import numpy as np

TASKS = ("classification", "embedding", "anomaly")
TRACK = ".txt"


class WavTrackConfig(AudioSourceConfig):
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
    def _whole_samples(self) -> WavTrackConfig:
        self.samples("seconds", self.seconds)
        self.samples("stride_s", self.stride_s or self.seconds)
        return self

    @model_validator(mode="after")
    def _is_normal(self) -> WavTrackConfig:
        if (
            self.task == "anomaly"
            and self.background is not None
            and self.background.lower() not in anomaly.NORMAL_CLASSES
        ):
            raise ValueError(
                f"background: got {self.background!r}, and every class but {' or '.join(anomaly.NORMAL_CLASSES)} is an "
                f"anomaly; write {anomaly.NORMAL_CLASSES[0]}, or leave it out"
            )
        return self

    @property
    def windows(self) -> dict[str, Any]:
        """How a recording is cut, as the device will do it."""
        return input_path.windows_step(self.raw_shape[0], self.samples("stride_s", self.stride_s or self.seconds))

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """What happens to a file, as the device will do it."""
        return [*self.decoding, self.windows]


def identity(config: WavTrackConfig) -> list[object]:
    """Every recording and its track, by what the file system says of them."""
    path = existing_path(config.path, "data.path")
    found = file_stamps(path) if path.is_dir() else [*file_stamps(path), *file_stamps(_track(path))]
    return [digest(found)]


def read(config: WavTrackConfig, progress: ProgressCallback | None = None) -> Pools:
    """One pool of (n, samples) float32 with the number of each window's stretch; it is divided by stretches."""
    import numpy as np

    from edgekit.data.types import Split

    recordings = _recordings(existing_path(config.path, "data.path"))
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


def _windows(path: Path, config: WavTrackConfig) -> tuple[np.ndarray, Sequence[LabelledWindow], Counter[str]]:
    """The windows (n, samples) of a recording that have a label, what they are, and how many others there are."""
    import numpy as np

    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav, windows

    track = _track(path)
    try:
        stretches, points = parse_track(track.name, track.read_bytes())
        wanted = wav.AudioSpec(config.raw_shape[0], config.rate_hz, tuple(config.input_path), "the config asks for")
        x, _ = wav.decode(path.name, path.read_bytes(), wanted)
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions") from None
    check_length(track.name, stretches, len(x) / config.rate_hz)
    step = config.windows
    found = label_windows(
        stretches,
        windows.window_count(len(x), step),
        step["length"],
        step["stride"],
        config.rate_hz,
        config.least_share,
        config.background,
    )
    left_out = found.left_out + Counter({"marks without a length": points})
    chosen = np.array([each.number for each in found.windows], np.int64)
    return windows.stack_windows(x, step)[chosen].reshape(-1, step["length"]), found.windows, left_out


def _notes(kept: int, left_out: Counter[str]) -> tuple[str, ...]:
    """What is in no window that is used."""
    if not left_out:
        return ()
    return (f"{kept:,} windows have a label; left out: " + ", ".join(f"{n:,} {why}" for why, n in left_out.items()),)


Part = tuple[int, int, str]
"""Of a stretch in samples: where it starts, where it ends, its label."""
SLACK_S = 0.05
"""How far a stretch may reach past its recording: an export rounds."""


@dataclass(frozen=True)
class LabelledStretch:
    """From `start_s` to `end_s` of a recording it is `label`."""

    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True)
class LabelledWindow:
    """A window that has a label: its number among all of the recording, and the stretch that it is of."""

    number: int
    label: str
    stretch: int


@dataclass(frozen=True)
class LabelledWindows:
    """The windows that have a label, in order, and how many were left out, by why."""

    windows: list[LabelledWindow]
    left_out: Counter[str]


def parse_track(name: str, content: bytes) -> tuple[list[LabelledStretch], int]:
    """The stretches of a track by their start, and how many marks without a length were passed over."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: no text in UTF-8 (byte {error.start}); export the label track again") from None
    found, points = [], 0
    for line, text in enumerate(lines, 1):
        if not text.strip() or text.startswith("\\"):  # the second line of a label with a range of frequencies
            continue
        start_s, end_s, label = _cells(f"{name}, line {line}", text)
        if start_s == end_s:
            points += 1
            continue
        found.append(LabelledStretch(start_s, end_s, label))
    if not found:
        raise DataError(f"{name}: marks no stretch; write start, end and label in a line, with tabs between")
    return sorted(found, key=lambda each: (each.start_s, each.end_s)), points


def _cells(where: str, text: str) -> tuple[float, float, str]:
    cells = [cell.strip() for cell in text.split("\t")]
    if len(cells) != 3:
        raise DataError(f"{where}: {len(cells)} cells; write start, end and label, with tabs between")
    try:
        start_s, end_s = float(cells[0]), float(cells[1])
    except ValueError:
        raise DataError(f"{where}: got {cells[0]!r} and {cells[1]!r}; start and end are seconds, as 12.5") from None
    if not (math.isfinite(end_s) and 0 <= start_s <= end_s):
        raise DataError(f"{where}: from {start_s:g} to {end_s:g} s; a stretch ends after it starts, and starts from 0")
    if not cells[2]:
        raise DataError(f"{where}: the label is empty; write it, or remove the line")
    return start_s, end_s, cells[2]


def check_length(name: str, stretches: Sequence[LabelledStretch], seconds: float) -> None:
    """DataError for a stretch that reaches past its recording of so many seconds."""
    for each in stretches:
        if each.end_s > seconds + SLACK_S:
            raise DataError(
                f"{name}: {each.label!r} reaches to {each.end_s:g} s, the recording ends at {seconds:.2f} s; "
                "is it the track of another recording?"
            )


def label_windows(
    stretches: Sequence[LabelledStretch],
    count: int,
    length: int,
    stride: int,
    rate_hz: int,
    least_share: float,
    background: str | None,
) -> LabelledWindows:
    """The label of each of `count` windows that has one; `length` and `stride` are in samples of the recording.

    A window is of the label that covers `least_share` of it, and more of it than any other does. Where no label
    touches it, it is `background`, if that is given; the stretches of the background are the gaps.
    """
    blocks = _blocks([_in_samples(each, rate_hz) for each in stretches])
    found: list[LabelledWindow] = []
    left_out: Counter[str] = Counter()
    last_end, last = 0, -1
    first = 0
    for number in range(count):
        start, end = number * stride, number * stride + length
        while first < len(blocks) and blocks[first][1] <= start:
            first += 1
        touched = [at for at in range(first, len(blocks)) if blocks[at][0] < end]
        if not touched:
            if background is None:
                left_out["without a label"] += 1
                continue
            label, stretch = background, 2 * first  # gaps have even numbers, blocks odd ones
        elif len(touched) > 1:
            left_out["across two stretches"] += 1
            continue
        else:
            label, stretch = _label(blocks[first][2], start, end, least_share), 2 * first + 1
            if not label:
                left_out["covered by no label for long enough"] += 1
                continue
        if stretch != last and start < last_end:
            left_out["beside a window of another stretch, whose moments they share"] += 1
            continue
        found.append(LabelledWindow(number, label, stretch))
        last_end, last = end, stretch
    return LabelledWindows(found, left_out)


def _in_samples(stretch: LabelledStretch, rate_hz: int) -> Part:
    return round(stretch.start_s * rate_hz), round(stretch.end_s * rate_hz), stretch.label


def _blocks(parts: Sequence[Part]) -> list[tuple[int, int, list[Part]]]:
    """Start, end and parts of each run of parts that overlap one another; touching ends do not."""
    blocks: list[tuple[int, int, list[Part]]] = []
    for part in parts:
        if blocks and part[0] < blocks[-1][1]:
            start, end, inside = blocks[-1]
            blocks[-1] = (start, max(end, part[1]), [*inside, part])
        else:
            blocks.append((part[0], part[1], [part]))
    return blocks


def _label(parts: Sequence[Part], start: int, end: int, least_share: float) -> str:
    """The label that covers most of a window, and enough of it; empty where none does, or two alike."""
    covered: Counter[str] = Counter()
    for first, last, label in parts:
        covered[label] += max(0, min(end, last) - max(start, first))
    [(label, most), *others] = covered.most_common()
    if most < least_share * (end - start) or (others and others[0][1] == most):
        return ""
    return label
