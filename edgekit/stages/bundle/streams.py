"""Evaluate the answers of a variant to the validation windows in the order of time, as on a device.

The validation split holds pieces of recordings, because the parts between them belong to other splits. The pieces are
joined, and smoothing is not reset between them. At the start of a piece, smoothing still combines answers from the
previous piece, so the evaluation includes the errors at such a transition.
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
NORMAL_LABEL = 0
"""Label of the normal samples in an anomaly detection."""


class WindowSequence(NamedTuple):
    """The validation windows in the order of time.

    `indices` are the positions of the windows in the split, `labels` are their labels, and `pieces` are the numbers of
    the pieces to which they belong; all have shape (n,). `background` is the label of windows without an event, or
    None. `hop` is the distance from one window to the next in samples or rows, and `hop_s` is the same distance in
    seconds. `span_windows` is the number of windows that start within the length of one window.
    """

    indices: np.ndarray
    labels: np.ndarray
    pieces: np.ndarray
    background: int | None
    hop: int
    hop_s: float | None
    span_windows: int


def check_options(data: Data, config: BundleConfig) -> None:
    """Raise ConfigError before any training if the options for streams do not fit the data."""
    if config.smoothing is not None:
        try:
            smoothing_rules.check_kind(data.kind)
        except InputError as error:
            raise ConfigError(f"bundle.{error}") from None
    has_choice = config.smoothing is not None and config.smoothing.choose is not None
    if has_choice and data.task not in TASKS:
        raise ConfigError(
            f"bundle.smoothing and task disagree: got choose, and task is {data.task}; only the answers of "
            f"{' and '.join(TASKS)} can be evaluated over time, so name a method with its options"
        )
    if has_choice and _hop(data) is None:
        raise ConfigError(
            "bundle.smoothing and data disagree: got choose, and the validation samples have no order in time "
            "(single clips, rows or arrays, or data.limit removed windows); use data.source wav_track or csv_windows "
            "with recordings, or name a method with its options"
        )
    background = config.stream.background
    if background is not None and data.task == "classification" and background not in data.classes:
        raise ConfigError(f"bundle.stream.background: got {background!r}; the classes are {', '.join(data.classes)}")
    if background is not None and data.task != "classification" and background.lower() not in _normal_classes(data):
        is_anomaly = data.task == "anomaly"
        explanation = "the background is the normal class" if is_anomaly else "only classifications have a background"
        raise ConfigError(
            f"bundle.stream.background: got {background!r}, and task is {data.task}: {explanation}; leave it out"
        )
    rows_per_s = config.stream.rows_per_s
    if rows_per_s is not None and data.sample_rate_hz:
        raise ConfigError(
            f"bundle.stream.rows_per_s: got {rows_per_s:g}, and the samples are audio at {data.sample_rate_hz:,} Hz; "
            "leave it out"
        )


def _normal_classes(data: Data) -> tuple[str, ...]:
    return anomaly.NORMAL_CLASSES if data.task == "anomaly" else ()


def window_sequence(data: Data, config: BundleConfig) -> WindowSequence | None:
    """Return the validation windows in the order of time, or None if that order is unknown."""
    hop, split = _hop(data), data.validation
    if hop is None or data.task not in TASKS:
        return None
    assert split.starts is not None and split.groups is not None
    indices = np.argsort(split.starts, kind="stable")
    starts, groups = split.starts[indices], split.groups[indices]
    starts_piece = (np.diff(groups) != 0) | (np.diff(starts) != hop)
    pieces = np.concatenate([[0], np.cumsum(starts_piece)])
    rate = data.sample_rate_hz or config.stream.rows_per_s
    length = data.raw_shape[0]
    return WindowSequence(
        indices,
        split.y[indices],
        pieces,
        _background_label(data, config),
        hop,
        hop / rate if rate else None,
        -(-length // hop),
    )


def smoothed_labels(
    outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, spec: dict[str, Any] | None
) -> np.ndarray:
    """Return the label that the runner reports at each window, (n,), as computed by the runner's own code.

    `outputs` (n, …) are in the order of time. `samples` are the network's inputs, which only some tasks need. `spec` is
    the smoothing, or None for no smoothing.
    """
    declared_manifest = replace(manifest, smoothing=spec)
    postprocess_window = postprocess.make_postprocessor(declared_manifest)
    smooth = smoothing.make_smoother(declared_manifest)
    labels_by_window = []
    for index, output in enumerate(outputs):
        extra = () if samples is None else (samples[index],)
        answer = postprocess_window(output, 1, {}, *extra)
        labels_by_window.append(smoothing.label_indices(smooth(answer) if smooth else answer, declared_manifest))
    return np.array([labels[0] if labels else NORMAL_LABEL for labels in labels_by_window], np.int64)


def _hop(data: Data) -> int | None:
    """Return the distance from one window to the next in samples or rows, or None if the order is unknown."""
    step = input_path.find_step(data.input_path or (), "windows")
    has_order = data.validation.starts is not None and data.validation.groups is not None
    return int(step["stride"]) if step and has_order else None


def _background_label(data: Data, config: BundleConfig) -> int | None:
    if data.task == "anomaly":
        return NORMAL_LABEL
    name = config.stream.background or data.background
    if name is None:
        return None
    if name not in data.classes:
        raise DataError(f"background: got {name!r}; the classes are {', '.join(data.classes)}")
    return data.classes.index(name)


SmoothingSpec = dict[str, Any] | None


def evaluate_smoothing(
    sequence: WindowSequence, outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, config: BundleConfig
) -> StreamResult:
    """Compare the smoothings of the config with each other and with no smoothing, and select one.

    If the config names a single method, this method is selected. The rules below apply if it lists several methods, or
    leaves their choice to edgekit (`auto`).

    `outputs` and `samples` are in the order of time.

    If a class is the background, smoothings are compared by their events. A smoothing may detect fewer events than are
    detected without smoothing, but at most by the share of all events that `smoothing.detection_drop_pp` allows. Of the
    smoothings that meet this condition, the one with the fewest false alarms is selected. In a tie, more detected
    events decide, then a shorter delay, then a higher accuracy. The selected smoothing is a point on the curve of
    misses against false alarms by which keyword spotting is evaluated (`edgekit/core/stream_events.py`).

    Without a background, the smoothing whose answers have the highest accuracy is selected. If several are equally good
    by all of these rules, the first is selected: no smoothing comes first, then the candidates in their order.

    The figures of the selected smoothing are optimistic, because it is the best of several on the same windows.
    """
    tolerance = sequence.span_windows if config.stream.tolerance_windows is None else config.stream.tolerance_windows
    options = config.smoothing
    specs: list[SmoothingSpec] = [None, *(options.candidates(config.task) if options else [])]
    labels_by_spec = [smoothed_labels(outputs, samples, manifest, spec) for spec in specs]
    accuracies = [float((labels == sequence.labels).mean()) for labels in labels_by_spec]
    counts = [
        stream_events.count_events(
            labels, sequence.labels, sequence.pieces, sequence.background, tolerance, sequence.span_windows
        )
        for labels in labels_by_spec
        if sequence.background is not None
    ]
    selected, reasons, rule = len(specs) - 1, [""] * len(specs), "as declared" if options else "nothing to choose"
    if options and options.choose is not None:
        rule = "fewest false alarms" if counts else "highest accuracy"
        selected, reasons = (
            choose_by_events(counts, accuracies, options.detection_drop_pp)
            if counts
            else choose_by_accuracy(accuracies)
        )
    confidence = config.budget.accuracy_confidence
    unsmoothed = counts[0] if counts else None
    hours = unsmoothed.outside * sequence.hop_s / 3600 if unsmoothed and sequence.hop_s else None
    return {
        "split": "validation",
        "windows": len(sequence.labels),
        "pieces": int(sequence.pieces[-1]) + 1,
        "hop": sequence.hop,
        "hop_s": sequence.hop_s,
        "background": None if sequence.background is None else manifest.labels[sequence.background],
        "events": unsmoothed.events if unsmoothed else None,
        "hours": hours,
        "windows_outside": unsmoothed.outside if unsmoothed else None,
        "tolerance_windows": tolerance,
        "repeat_windows": sequence.span_windows,
        "confidence": confidence,
        "rule": rule,  # type: ignore[typeddict-item]  # one of the literals of the schema
        "candidates": [
            _row(
                spec, accuracy, counts[index] if counts else None, hours, confidence, index == selected, reasons[index]
            )
            for index, (spec, accuracy) in enumerate(zip(specs, accuracies, strict=True))
        ],
    }


def choose_by_events(
    counts: Sequence[EventCounts], accuracies: Sequence[float], drop_pp: float
) -> tuple[int, list[str]]:
    """Return the index of the selected smoothing, and the reason against each smoothing that was not selected.

    The first entries of `counts` and `accuracies` are those of no smoothing. The reason at the selected index is empty.
    """
    min_detected = counts[0].detected - drop_pp / 100 * counts[0].events
    eligible = [index for index, each in enumerate(counts) if each.detected >= min_detected - 1e-9]
    best = min(eligible, key=lambda index: (*_event_costs(counts[index]), -accuracies[index], index))
    reasons = []
    for index, each in enumerate(counts):
        if index == best:
            reasons.append("")
        elif index not in eligible:
            reasons.append(f"detects {counts[0].detected - each.detected} events fewer")
        elif each.false_alarms > counts[best].false_alarms:
            reasons.append("more false alarms")
        else:
            reasons.append("later, or no better")
    return best, reasons


def choose_by_accuracy(accuracies: Sequence[float]) -> tuple[int, list[str]]:
    """Return the index of the smoothing with the highest accuracy over the windows, and the reasons against the others.

    Like `choose_by_events`, it returns an empty reason at the selected index.
    """
    best = max(range(len(accuracies)), key=lambda index: (accuracies[index], -index))
    reasons = [
        "" if index == best else _accuracy_reason(accuracy, accuracies[best])
        for index, accuracy in enumerate(accuracies)
    ]
    return best, reasons


def _accuracy_reason(accuracy: float, best: float) -> str:
    return "less accurate" if accuracy < best else "no better"


def _event_costs(counts: EventCounts) -> tuple[int, int, float]:
    return counts.false_alarms, -counts.detected, float(np.mean(counts.delays)) if counts.delays else 0.0


def _row(
    spec: SmoothingSpec,
    accuracy: float,
    counts: EventCounts | None,
    hours: float | None,
    confidence: float,
    is_selected: bool,
    reason: str,
) -> SmoothingResult:
    alarms = counts.false_alarms if counts else None
    rated = alarms is not None and bool(hours)
    return {
        "smoothing": spec,
        "accuracy": accuracy,
        "detected": counts.detected if counts else None,
        "delay_windows": float(np.mean(counts.delays)) if counts and counts.delays else None,
        "false_alarms": alarms,
        "per_hour": alarms / hours if alarms is not None and rated and hours else None,
        "per_hour_at_most": stream_events.poisson_upper_bound(alarms, confidence) / hours
        if alarms is not None and hours
        else None,
        "alarmed_share": counts.alarmed / counts.outside if counts and counts.outside else None,
        "kept": is_selected,
        "reason": reason,
    }


def stream_summary(stream: StreamResult | None) -> list[str]:
    """Return lines on the smoothing and on detections and false alarms; empty if the stream was not evaluated."""
    if stream is None:
        return []
    row = next(row for row in stream["candidates"] if row["kept"])
    lines = [f"Answers to a stream: {describe_smoothing(row['smoothing'])}, one window every {stream['hop']}"]
    if row["detected"] is None:
        return lines
    detections = f"{row['detected']} of {stream['events']} events detected, {row['false_alarms']} false alarms"
    if row["per_hour_at_most"] is not None:
        detections += (
            f" in {stream['hours']:.3g} h outside of them, at most {row['per_hour_at_most']:.3g} an hour "
            f"at {100 * stream['confidence']:g} % confidence"
        )
    return [*lines, f"On validation: {detections}"]


def describe_smoothing(spec: Mapping[str, Any] | None) -> str:
    """Describe a smoothing in words, for example `majority of 5 windows` or `no smoothing`."""
    if spec is None:
        return "no smoothing"
    if "windows" in spec:
        return f"{spec['method']} of {spec['windows']} windows"
    return f"{spec['method']}, enter {spec['enter']:g}, leave {spec['leave']:g}"
