"""Long recordings with label tracks: NAME.wav beside NAME.txt with start, end and label, as Audacity exports it.

A recording is cut into windows of `seconds`, one every `stride_s`, as on the device. Each window gets the label that
covers most of it, if that label covers at least the share `least_share`. A part of a recording with one label is called
a stretch here. The windows of one stretch stay in one split. No moment of a recording is in two splits, because windows
that overlap those of another stretch are left out. All windows are in memory, and each takes 64 kB per second at 16
kHz.

A line of a label track has start, end and label, separated by tabs, with times in seconds from the recording's start.
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
from edgekit.core.paths import PathText, existing_path, file_stamps
from edgekit.core.tasks import anomaly
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
        None,
        gt=0,
        le=600,
        description="from the start of a window to that of the next, seconds; none: a window's length",
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
                f"background: got {self.background!r}, but every class except {' or '.join(anomaly.NORMAL_CLASSES)} is "
                f"an anomaly; write {anomaly.NORMAL_CLASSES[0]}, or leave it out"
            )
        return self

    @property
    def windows(self) -> dict[str, Any]:
        """The step that cuts a recording, as on the device."""
        return input_path.windows_step(self.raw_shape[0], self.samples("stride_s", self.stride_s or self.seconds))

    @property
    def input_path(self) -> list[dict[str, Any]]:
        """The steps for a file, as on the device."""
        return [*self.decoding, self.windows]


def identity(config: WavTrackConfig) -> list[object]:
    """Return the stamps of every recording and its track."""
    path = existing_path(config.path, "data.path")
    file_stamps_of_all = file_stamps(path) if path.is_dir() else [*file_stamps(path), *file_stamps(_track(path))]
    return [digest(file_stamps_of_all)]


def read(config: WavTrackConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return one pool of (n, samples) float32. Its groups are the numbers of the stretches, which are never divided."""
    import numpy as np

    from edgekit.data.types import Split

    recordings = _recordings(existing_path(config.path, "data.path"))
    parts: list[np.ndarray] = []
    labels: list[str] = []
    groups: list[int] = []
    starts: list[int] = []
    left_out: Counter[str] = Counter()
    for done, path in enumerate(recordings, 1):
        x, windows, window_left_out = _windows(path, config)
        offset = max(starts, default=0) + 2 * config.raw_shape[0] * bool(starts)  # recordings do not touch each other
        first = 1 + max(groups, default=-1)
        parts.append(x)
        labels += [window.label for window in windows]
        groups += [first + window.stretch for window in windows]
        starts += [offset + window.number * config.windows["stride"] for window in windows]
        left_out += window_left_out
        if progress:
            progress(done, len(recordings))
    if not labels:
        raise DataError(f"{recordings[0].name}: no window of {config.seconds:g} s has a label; lower data.seconds")
    classes = tuple(sorted(set(labels)))
    y = np.array([classes.index(label) for label in labels], np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = (np.array(window, np.int64)[order] for window in (groups, starts))
    split = Split(np.concatenate(parts)[order], y[order], *shuffled)
    pools = Pools(split, None, None, classes, "audio", _notes(len(y), left_out), config.rate_hz)
    return replace(pools, input_path=tuple(config.input_path), background=config.background)


def _recordings(path: Path) -> list[Path]:
    """Return all .wav files. Raises DataError if one has no label track."""
    recordings = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".wav" and file.is_file())
        recordings = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    elif path.suffix.lower() != ".wav":
        raise DataError(f"{path.name}: not a .wav; name a recording, or a folder of recordings")
    if not recordings:
        raise DataError(f"{path.name}: contains no .wav; put the recordings there, each with its label track")
    for file in recordings:
        _track(file)
    return recordings


def _track(path: Path) -> Path:
    track = path.with_suffix(TRACK)
    if not track.is_file():
        raise DataError(
            f"{path.name}: its label track is missing; export it to {track.name} beside it, in Audacity by "
            "File, Export, Export Labels"
        )
    return track


def _windows(path: Path, config: WavTrackConfig) -> tuple[np.ndarray, Sequence[LabelledWindow], Counter[str]]:
    """Return the windows (n, samples) of a recording that have a label, their labels, and the counts of the others."""
    import numpy as np

    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import wav, windows

    track = _track(path)
    try:
        stretches, points = parse_track(track.name, track.read_bytes())
        spec = wav.AudioSpec(config.raw_shape[0], config.rate_hz, tuple(config.input_path), "the config asks for")
        x, _ = wav.decode(path.name, path.read_bytes(), spec)
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions") from None
    check_length(track.name, stretches, len(x) / config.rate_hz)
    step = config.windows
    labelled = label_windows(
        stretches,
        windows.window_count(len(x), step),
        step["length"],
        step["stride"],
        config.rate_hz,
        config.least_share,
        config.background,
    )
    left_out = labelled.left_out + Counter({"marks without a length": points})
    chosen = np.array([each.number for each in labelled.windows], np.int64)
    return windows.stack_windows(x, step)[chosen].reshape(-1, step["length"]), labelled.windows, left_out


def _notes(used: int, left_out: Counter[str]) -> tuple[str, ...]:
    """Return a note on the windows that are not used, or nothing if all are used."""
    if not left_out:
        return ()
    return (f"{used:,} windows have a label; left out: " + ", ".join(f"{n:,} {why}" for why, n in left_out.items()),)


Part = tuple[int, int, str]
"""Start, end and label of a stretch, in samples."""
SLACK_S = 0.05
"""Seconds by which a stretch may extend past the end of its recording, because exports round times."""


@dataclass(frozen=True)
class LabelledStretch:
    """A part of a recording with one label."""

    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True)
class LabelledWindow:
    """A window with a label: its number among all windows of the recording, and the stretch that it belongs to."""

    number: int
    label: str
    stretch: int


@dataclass(frozen=True)
class LabelledWindows:
    """The windows with a label, in order, and the number of other windows by the reason why they were left out."""

    windows: list[LabelledWindow]
    left_out: Counter[str]


def parse_track(name: str, content: bytes) -> tuple[list[LabelledStretch], int]:
    """Return the stretches of a label track in order, and the number of marks without a length, which are ignored."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not text in UTF-8 (byte {error.start}); export the label track again") from None
    stretches, points = [], 0
    for line, text in enumerate(lines, 1):
        if not text.strip() or text.startswith("\\"):  # Audacity writes such a line for a label's range of frequencies
            continue
        start_s, end_s, label = _cells(f"{name}, line {line}", text)
        if start_s == end_s:
            points += 1
            continue
        stretches.append(LabelledStretch(start_s, end_s, label))
    if not stretches:
        raise DataError(f"{name}: has no stretch; write start, end and label in a line, separated by tabs")
    return sorted(stretches, key=lambda each: (each.start_s, each.end_s)), points


def _cells(where: str, text: str) -> tuple[float, float, str]:
    cells = [cell.strip() for cell in text.split("\t")]
    if len(cells) != 3:
        raise DataError(f"{where}: {len(cells)} cells; write start, end and label, separated by tabs")
    try:
        start_s, end_s = float(cells[0]), float(cells[1])
    except ValueError:
        raise DataError(
            f"{where}: got {cells[0]!r} and {cells[1]!r}; start and end are seconds, such as 12.5"
        ) from None
    if not (math.isfinite(end_s) and 0 <= start_s <= end_s):
        raise DataError(
            f"{where}: from {start_s:g} to {end_s:g} s; a stretch ends after it starts, and does not start before 0"
        )
    if not cells[2]:
        raise DataError(f"{where}: the label is empty; write it, or remove the line")
    return start_s, end_s, cells[2]


def check_length(name: str, stretches: Sequence[LabelledStretch], seconds: float) -> None:
    """Raise DataError if a stretch extends past its recording."""
    for stretch in stretches:
        if stretch.end_s > seconds + SLACK_S:
            raise DataError(
                f"{name}: {stretch.label!r} reaches to {stretch.end_s:g} s, but the recording ends at "
                f"{seconds:.2f} s; is it the track of another recording?"
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
    """Label the windows of a recording.

    A window has the label that covers the largest part of it, which must be at least `least_share`. A window that no
    label touches belongs to the class `background`, if that is given. The stretches of the background are the gaps
    between labels.

    Parameters
    ----------
    stretches
        The stretches of the label track, in order.
    count
        Number of windows.
    length, stride
        Length of a window and distance between two windows, in samples.
    rate_hz
        Samples per second.
    least_share
        Share of a window that its label must cover.
    background
        The class of windows without a label; None leaves them out.
    """
    blocks = _blocks([_in_samples(each, rate_hz) for each in stretches])
    windows: list[LabelledWindow] = []
    left_out: Counter[str] = Counter()
    last_end, last_stretch = 0, -1
    first = 0
    for number in range(count):
        start, end = number * stride, number * stride + length
        while first < len(blocks) and blocks[first][1] <= start:
            first += 1
        touching = [at for at in range(first, len(blocks)) if blocks[at][0] < end]
        if not touching:
            if background is None:
                left_out["without a label"] += 1
                continue
            label, stretch = background, 2 * first  # gaps have even numbers, blocks odd ones
        elif len(touching) > 1:
            left_out["across two stretches"] += 1
            continue
        else:
            label, stretch = _label(blocks[first][2], start, end, least_share), 2 * first + 1
            if not label:
                left_out["not covered enough by any label"] += 1
                continue
        if stretch != last_stretch and start < last_end:
            left_out["overlapping a window of another stretch"] += 1
            continue
        windows.append(LabelledWindow(number, label, stretch))
        last_end, last_stretch = end, stretch
    return LabelledWindows(windows, left_out)


def _in_samples(stretch: LabelledStretch, rate_hz: int) -> Part:
    return round(stretch.start_s * rate_hz), round(stretch.end_s * rate_hz), stretch.label


def _blocks(parts: Sequence[Part]) -> list[tuple[int, int, list[Part]]]:
    """Return start, end and members of each chain of overlapping parts. Parts that only touch do not overlap."""
    blocks: list[tuple[int, int, list[Part]]] = []
    for part in parts:
        if blocks and part[0] < blocks[-1][1]:
            start, end, inside = blocks[-1]
            blocks[-1] = (start, max(end, part[1]), [*inside, part])
        else:
            blocks.append((part[0], part[1], [part]))
    return blocks


def _label(parts: Sequence[Part], start: int, end: int, least_share: float) -> str:
    """Return the label that covers the largest part of a window, which must be at least `least_share`.

    The result is empty if no label covers that much, or if two labels cover equally much.
    """
    covered: Counter[str] = Counter()
    for first, last, label in parts:
        covered[label] += max(0, min(end, last) - max(start, first))
    [(label, most), *others] = covered.most_common()
    if most < least_share * (end - start) or (others and others[0][1] == most):
        return ""
    return label
