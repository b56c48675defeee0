"""The validation windows of a variant, played in the order of time as the device would get them.

Pieces of recordings lie one behind the other, for what lies between them is of other splits. Smoothing is not begun
anew at a seam: each piece finds what was said of the one before, and so a change has its price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edgekit.core import stream_events
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.schema.streams import SmoothingResult, StreamResult
from edgekit.core.stream_events import EventCounts
from edgekit.core.tasks import anomaly
from edgekit.data import Data
from edgekit.runner import input_path, postprocess, smoothing
from edgekit.runner.bundle import smoothing_rules
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import InputError
from edgekit.stages.bundle.config import BundleConfig

TASKS = ("classification", "anomaly")
NORMAL = 0
"""The label of normal samples in an anomaly detection."""


class Played(NamedTuple):
    """Windows in the order of time: where each stands in the split, its label, and the piece that it is of, all (n,).

    `rest` is the label of what is no event, None where there is none. `spans` windows begin within the length of one.
    """

    places: np.ndarray
    truth: np.ndarray
    pieces: np.ndarray
    rest: int | None
    hop: int
    hop_s: float | None
    spans: int


def check(data: Data, config: BundleConfig) -> None:
    """ConfigError for options that these data do not fit, before anything is trained."""
    if config.smoothing is not None:
        try:
            smoothing_rules.check_kind(data.kind)
        except InputError as error:
            raise ConfigError(f"bundle.{error}") from None
    chooses = config.smoothing is not None and config.smoothing.choose is not None
    if chooses and data.task not in TASKS:
        raise ConfigError(
            f"bundle.smoothing and task disagree: got choose, and task is {data.task}; only answers of "
            f"{' and '.join(TASKS)} are evaluated over time: name a method and its options"
        )
    if chooses and _hop(data) is None:
        raise ConfigError(
            "bundle.smoothing and data disagree: got choose, and the validation samples have no order in time "
            "(single clips, rows or arrays, or data.limit took windows out); give recordings to data.source wav_track "
            "or csv_windows, or name a method and its options"
        )
    wanted = config.stream.background
    if wanted is not None and data.task == "classification" and wanted not in data.classes:
        raise ConfigError(f"bundle.stream.background: got {wanted!r}; the classes are {', '.join(data.classes)}")
    if wanted is not None and data.task != "classification" and wanted.lower() not in _background_of(data):
        said = "what is normal is no event" if data.task == "anomaly" else "only classes have one"
        raise ConfigError(f"bundle.stream.background: got {wanted!r}, and task is {data.task}: {said}; leave it out")
    rows_per_s = config.stream.rows_per_s
    if rows_per_s is not None and data.sample_rate_hz:
        raise ConfigError(
            f"bundle.stream.rows_per_s: got {rows_per_s:g}, and the samples are sounds of {data.sample_rate_hz:,} Hz; "
            "leave it out"
        )


def _background_of(data: Data) -> tuple[str, ...]:
    return anomaly.NORMAL_CLASSES if data.task == "anomaly" else ()


def order(data: Data, config: BundleConfig) -> Played | None:
    """The validation windows in the order of time; None where nobody knows it."""
    hop, split = _hop(data), data.validation
    if hop is None or data.task not in TASKS:
        return None
    assert split.starts is not None and split.groups is not None
    places = np.argsort(split.starts, kind="stable")
    starts, groups = split.starts[places], split.groups[places]
    seams = (np.diff(groups) != 0) | (np.diff(starts) != hop)
    pieces = np.concatenate([[0], np.cumsum(seams)])
    rate = data.sample_rate_hz or config.stream.rows_per_s
    length = data.raw_shape[0]
    return Played(
        places, split.y[places], pieces, _rest(data, config), hop, hop / rate if rate else None, -(-length // hop)
    )


def said(outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, way: dict[str, Any] | None) -> np.ndarray:
    """Label (n,) that is said at each window, by the runner's own code; `way` is the smoothing, None: none.

    outputs: (n, …), in the order of time; samples: what the network was given for them, where the task asks for it.
    """
    declared = replace(manifest, smoothing=way)
    answer, smooth = postprocess.make_postprocessor(declared), smoothing.make_smoother(declared)
    found = []
    for place, output in enumerate(outputs):
        also = () if samples is None else (samples[place],)
        one = answer(output, 1, {}, *also)
        found.append(smoothing.label_indices(smooth(one) if smooth else one, declared))
    return np.array([labels[0] if labels else NORMAL for labels in found], np.int64)


def _hop(data: Data) -> int | None:
    """From window to window, in samples or rows; None where validation has no order in time."""
    step = input_path.find_step(data.input_path or (), "windows")
    known = data.validation.starts is not None and data.validation.groups is not None
    return int(step["stride"]) if step and known else None


def _rest(data: Data, config: BundleConfig) -> int | None:
    if data.task == "anomaly":
        return NORMAL
    name = config.stream.background or data.background
    if name is None:
        return None
    if name not in data.classes:
        raise DataError(f"background: got {name!r}; the classes are {', '.join(data.classes)}")
    return data.classes.index(name)


Way = dict[str, Any] | None


def evaluate_smoothing(
    played: Played, outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, config: BundleConfig
) -> StreamResult:
    """The candidates of the config beside no smoothing; `outputs` and `samples` in the order of time.

    Where a class is the background: the fewest false alarms among those that detect no fewer events than answers
    without smoothing do, up to `smoothing.detection_drop_pp`. Of equals, the most events, then the shortest delay, then
    the highest accuracy. That is a point on the curve of misses against false alarms by which keyword spotting is
    evaluated (`edgekit/core/stream_events.py`). Elsewhere: the highest accuracy of the smoothed answers. A last tie
    goes to the first candidate, and the first of all is no smoothing. The figures of what is chosen are flattered: it
    is the best of several on these windows.
    """
    tolerance = played.spans if config.stream.tolerance_windows is None else config.stream.tolerance_windows
    asked = config.smoothing
    ways: list[Way] = [None, *(asked.candidates(config.task) if asked else [])]
    told = [said(outputs, samples, manifest, way) for way in ways]
    right = [float((labels == played.truth).mean()) for labels in told]
    counts = [
        stream_events.count_events(labels, played.truth, played.pieces, played.rest, tolerance, played.spans)
        for labels in told
        if played.rest is not None
    ]
    kept, reasons, rule = len(ways) - 1, [""] * len(ways), "as declared" if asked else "nothing to choose"
    if asked and asked.choose is not None:
        rule = "fewest false alarms" if counts else "highest accuracy"
        kept, reasons = by_events(counts, right, asked.detection_drop_pp) if counts else by_accuracy(right)
    confidence = config.budget.accuracy_confidence
    first = counts[0] if counts else None
    hours = first.outside * played.hop_s / 3600 if first and played.hop_s else None
    return {
        "split": "validation",
        "windows": len(played.truth),
        "pieces": int(played.pieces[-1]) + 1,
        "hop": played.hop,
        "hop_s": played.hop_s,
        "background": None if played.rest is None else manifest.labels[played.rest],
        "events": first.events if first else None,
        "hours": hours,
        "windows_outside": first.outside if first else None,
        "tolerance_windows": tolerance,
        "repeat_windows": played.spans,
        "confidence": confidence,
        "rule": rule,  # type: ignore[typeddict-item]  # one of those that it has
        "candidates": [
            _row(way, accuracy, counts[place] if counts else None, hours, confidence, place == kept, reasons[place])
            for place, (way, accuracy) in enumerate(zip(ways, right, strict=True))
        ],
    }


def by_events(counts: Sequence[EventCounts], right: Sequence[float], drop_pp: float) -> tuple[int, list[str]]:
    """Which to keep, and why each other is not; the first is no smoothing."""
    least = counts[0].detected - drop_pp / 100 * counts[0].events
    able = [place for place, each in enumerate(counts) if each.detected >= least - 1e-9]
    best = min(able, key=lambda place: (*_costs(counts[place]), -right[place], place))
    reasons = []
    for place, each in enumerate(counts):
        if place == best:
            reasons.append("")
        elif place not in able:
            reasons.append(f"detects {counts[0].detected - each.detected} events fewer")
        elif each.false_alarms > counts[best].false_alarms:
            reasons.append("more false alarms")
        else:
            reasons.append("later, or no better")
    return best, reasons


def by_accuracy(right: Sequence[float]) -> tuple[int, list[str]]:
    """The same by shares of windows that are answered rightly."""
    best = max(range(len(right)), key=lambda place: (right[place], -place))
    reasons = ["" if place == best else _less(share, right[best]) for place, share in enumerate(right)]
    return best, reasons


def _less(share: float, best: float) -> str:
    return "less accurate" if share < best else "no better"


def _costs(each: EventCounts) -> tuple[int, int, float]:
    return each.false_alarms, -each.detected, float(np.mean(each.delays)) if each.delays else 0.0


def _row(
    way: Way, accuracy: float, each: EventCounts | None, hours: float | None, confidence: float, kept: bool, reason: str
) -> SmoothingResult:
    alarms = each.false_alarms if each else None
    rated = alarms is not None and bool(hours)
    return {
        "smoothing": way,
        "accuracy": accuracy,
        "detected": each.detected if each else None,
        "delay_windows": float(np.mean(each.delays)) if each and each.delays else None,
        "false_alarms": alarms,
        "per_hour": alarms / hours if alarms is not None and rated and hours else None,
        "per_hour_at_most": stream_events.poisson_upper_bound(alarms, confidence) / hours
        if alarms is not None and hours
        else None,
        "alarmed_share": each.alarmed / each.outside if each and each.outside else None,
        "kept": kept,
        "reason": reason,
    }


def told_of_stream(stream: StreamResult | None) -> list[str]:
    """A line on smoothing, and one on detections and false alarms; none where the stream was not evaluated."""
    if stream is None:
        return []
    row = next(row for row in stream["candidates"] if row["kept"])
    lines = [f"Answers to a stream: {smoothing_in_words(row['smoothing'])}, one window every {stream['hop']}"]
    if row["detected"] is None:
        return lines
    found = f"{row['detected']} of {stream['events']} events detected, {row['false_alarms']} false alarms"
    if row["per_hour_at_most"] is not None:
        found += (
            f" in {stream['hours']:.3g} h outside of them, at most {row['per_hour_at_most']:.3g} an hour "
            f"at {100 * stream['confidence']:g} % confidence"
        )
    return [*lines, f"On validation: {found}"]


def smoothing_in_words(way: Mapping[str, Any] | None) -> str:
    """`majority of 5 windows`, `hysteresis 0.8 to 0.5`, `no smoothing`."""
    if way is None:
        return "no smoothing"
    if "windows" in way:
        return f"{way['method']} of {way['windows']} windows"
    return f"{way['method']}, enter {way['enter']:g}, leave {way['leave']:g}"
