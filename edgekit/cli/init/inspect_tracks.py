"""Inspect long recordings with label tracks: how long a window may be, and whether there is a background."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgekit.cli.init import sizes
from edgekit.cli.init.inspect import Findings
from edgekit.core.errors import DataError
from edgekit.data.sources import wav_track
from edgekit.data.sources.wav_track import TRACK, LabelledStretch
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav

LONGEST_S = 1.0
BACKGROUND = "background"
LEAST_GAPS = 8
"""Gaps between labels, each long enough for some windows, from which on they are a class of their own."""


def has_track(path: Path) -> bool:
    """Whether a recording, or one in a folder, has a label track beside it."""
    recordings = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix.lower() == ".wav"]
    return any(each.with_suffix(TRACK).is_file() for each in recordings)


def recordings(path: Path, task: str | None = None) -> Findings:
    """A .wav with its track, or a folder of them; what no label covers is no class of an anomaly detection."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix.lower() == ".wav")
    stretches: list[LabelledStretch] = []
    rates: list[int] = []
    gaps_s: list[float] = []
    all_s = 0.0
    for each in files:
        track = each.with_suffix(TRACK)
        if not track.is_file():
            continue  # the source names it
        try:
            with open(each, "rb") as stream:
                sound = wav.read_header(str(each), stream, os.fstat(stream.fileno()).st_size)
        except InputError as error:
            raise DataError(str(error)) from None
        found, _ = wav_track.parse_track(track.name, track.read_bytes())
        stretches += found
        rates.append(sound.rate_hz)
        length_s = sound.samples / max(1, sound.rate_hz)
        all_s += length_s
        gaps_s += _gaps_s(found, length_s)
    rate_hz = max(set(rates), key=rates.count)
    seconds = _window_s([each.end_s - each.start_s for each in stretches], rate_hz)
    stride_s = _stride_samples(round(seconds * rate_hz), rate_hz) / rate_hz
    classes = {each.label for each in stretches}
    section = {"source": "wav_track", "path": str(path), "rate_hz": rate_hz, "seconds": seconds, "stride_s": stride_s}
    comments = {
        "seconds": "a window; at most the middle length of the stretches with a label",
        "stride_s": "from the start of a window to that of the next: whole hops of log_mel, so a stream shares frames",
        "background": "the class of windows that no label touches; without this line they are left out",
    }
    has_gaps = sum(gap_s >= 2 * seconds - 1e-6 for gap_s in gaps_s) >= LEAST_GAPS
    if has_gaps and BACKGROUND not in classes and task != "anomaly":
        section["background"] = BACKGROUND
        classes.add(BACKGROUND)
    what = "a recording" if len(rates) == 1 else f"{len(rates)} recordings"
    words = (
        f"{what} of {all_s:,.0f} s at {rate_hz:,} Hz with {len(stretches)} labelled stretches, "
        f"in windows of {seconds:.4g} s"
    )
    return Findings(section, words, comments=comments, classes=tuple(sorted(classes)))


def _gaps_s(stretches: Sequence[LabelledStretch], length_s: float) -> list[float]:
    """Lengths of what no label covers, before, between and behind the stretches of a recording."""
    gaps_s, until_s = [], 0.0
    for each in stretches:
        gaps_s.append(each.start_s - until_s)
        until_s = max(until_s, each.end_s)
    return [*gaps_s, length_s - until_s]


def _window_s(lengths_s: Sequence[float], rate_hz: int) -> float:
    """The middle length of the stretches, no longer than a second; whole samples."""
    middle_s = min(sorted(lengths_s)[len(lengths_s) // 2], LONGEST_S)
    return max(2, round(middle_s * rate_hz)) / rate_hz


def _stride_samples(samples: int, rate_hz: int) -> int:
    """Half of a window, less what is no whole hop of its log-mel: a stream then computes the new frames alone."""
    hop: int = sizes.log_mel(samples, rate_hz)["hop_samples"]
    return max(hop, samples // 2 // hop * hop)
