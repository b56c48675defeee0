"""Inspect long recordings with label tracks: choose the length of a window, and whether there is a background class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgekit.cli.init import sizes
from edgekit.cli.init.inspection import Findings
from edgekit.core.errors import DataError
from edgekit.data.sources import wav_track
from edgekit.data.sources.wav_track import TRACK, LabelledStretch
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav

MAX_SECONDS = 1.0
BACKGROUND = "background"
MIN_GAPS = 8
"""From this number on, sufficiently long gaps between labels form a class of their own."""


def has_track(path: Path) -> bool:
    """Whether a recording, or one of the recordings in a folder, has a label track beside it."""
    recordings = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix.lower() == ".wav"]
    return any(each.with_suffix(TRACK).is_file() for each in recordings)


def inspect_tracks(path: Path, task: str | None = None) -> Findings:
    """Inspect a .wav file with its track, or a folder of them. For anomaly detection, gaps are not a class."""
    files = (
        [path]
        if path.is_file()
        else sorted(recording_path for recording_path in path.rglob("*") if recording_path.suffix.lower() == ".wav")
    )
    stretches: list[LabelledStretch] = []
    rates: list[int] = []
    gaps_s: list[float] = []
    total_s = 0.0
    for recording_path in files:
        track = recording_path.with_suffix(TRACK)
        if not track.is_file():
            continue  # the source reports the fault later
        try:
            with open(recording_path, "rb") as stream:
                header = wav.read_header(str(recording_path), stream, os.fstat(stream.fileno()).st_size)
        except InputError as error:
            raise DataError(str(error)) from None
        stretches_found, _ = wav_track.parse_track(track.name, track.read_bytes())
        stretches += stretches_found
        rates.append(header.rate_hz)
        length_s = header.samples / max(1, header.rate_hz)
        total_s += length_s
        gaps_s += _gaps_s(stretches_found, length_s)
    rate_hz = max(set(rates), key=rates.count)
    seconds = _window_seconds([stretch.end_s - stretch.start_s for stretch in stretches], rate_hz)
    stride_s = _stride_samples(round(seconds * rate_hz), rate_hz) / rate_hz
    classes = {stretch.label for stretch in stretches}
    section = {"source": "wav_track", "path": str(path), "rate_hz": rate_hz, "seconds": seconds, "stride_s": stride_s}
    comments = {
        "seconds": "length of a window: the median length of the labelled stretches, but at most 1 s",
        "stride_s": "from the start of a window to that of the next: whole hops of log_mel, so windows share frames",
        "background": "the class of windows that no label touches; without this line they are left out",
    }
    has_gaps = sum(gap_s >= 2 * seconds - 1e-6 for gap_s in gaps_s) >= MIN_GAPS
    if has_gaps and BACKGROUND not in classes and task != "anomaly":
        section["background"] = BACKGROUND
        classes.add(BACKGROUND)
    noun = "a recording" if len(rates) == 1 else f"{len(rates)} recordings"
    description = (
        f"{noun} of {total_s:,.0f} s at {rate_hz:,} Hz with {len(stretches)} labelled stretches, "
        f"in windows of {seconds:.4g} s"
    )
    return Findings(section, description, comments=comments, classes=tuple(sorted(classes)))


def _gaps_s(stretches: Sequence[LabelledStretch], length_s: float) -> list[float]:
    """Return the lengths of the gaps before, between and after the labelled stretches of a recording."""
    gaps_s, covered_s = [], 0.0
    for stretch in stretches:
        gaps_s.append(stretch.start_s - covered_s)
        covered_s = max(covered_s, stretch.end_s)
    return [*gaps_s, length_s - covered_s]


def _window_seconds(lengths_s: Sequence[float], rate_hz: int) -> float:
    """Return the median length of the stretches, at most one second, in whole samples."""
    middle_s = min(sorted(lengths_s)[len(lengths_s) // 2], MAX_SECONDS)
    return max(2, round(middle_s * rate_hz)) / rate_hz


def _stride_samples(samples: int, rate_hz: int) -> int:
    """Return half a window, rounded down to whole hops of its log-mel, so that a stream computes only new frames."""
    hop: int = sizes.log_mel(samples, rate_hz)["hop_samples"]
    return max(hop, samples // 2 // hop * hop)
