"""Answers over time, as a bundle declares them under `smoothing`: majority, mean or hysteresis, for every task.

Only streams are smoothed, never single files. A method takes the bundle's options and its manifest, and gives a
function that keeps what it needs of the windows before, so each stream has its own. Windows that were dropped or
refused do not count. Sums are of Python's floats, in the order of time. `bundle/smoothing_rules.py` says what may be
declared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.runner.postprocess import classification, multi_label

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

Smoother = Callable[[Any], Any]


def make_smoother(manifest: Manifest) -> Smoother | None:
    """The function for a new stream, from the answer to a window to the answer at that time.

    Its answers are of the same kind, and the window's own stands beside them. None where the bundle declares no
    smoothing.
    """
    if manifest.smoothing is None:
        return None
    return METHODS[manifest.smoothing["method"]](manifest.smoothing, manifest)


def to_json_dict(smoothed: Any) -> dict[str, Any]:
    """A smoothed answer for JSON, without what the window's own answer says already."""
    found: dict[str, Any] = smoothed.to_dict()
    return {key: value for key, value in found.items() if key not in ("scores", "timing_ms")}


def majority(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """What most of the last `windows` windows say; numbers of labels are the share of the windows that say them.

    A class needs more windows than any other; of several with the most, the one that was said last. A label of several,
    and an anomaly, need more than half of the windows.
    """
    last: deque[list[int]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        last.append(label_indices(answer, manifest))
        votes = [sum(place in each for each in last) for place in range(len(manifest.labels))]
        if manifest.task == "anomaly":
            return with_values(
                answer, manifest, answer_values(answer, manifest), [1] if 2 * votes[1] > len(last) else []
            )
        shares = [count / len(last) for count in votes]
        if manifest.task == "classification":
            most = max(votes)
            return with_values(
                answer, manifest, shares, [next(each[0] for each in reversed(last) if votes[each[0]] == most)]
            )
        found = [place for place, count in enumerate(votes) if 2 * count > len(last)]
        return with_values(answer, manifest, shares, sorted(found, key=lambda place: -votes[place]))

    return smooth


def mean(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """The mean of the last `windows` windows: of probabilities, values or scores.

    The task's own rule then says what the numbers mean.
    """
    last: deque[list[float]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        last.append(answer_values(answer, manifest))
        return with_values(answer, manifest, [_mean(column) for column in zip(*last)])

    return smooth


def _mean(values: Sequence[float]) -> float:
    """Added one after another: Python's `sum` rounds otherwise from version 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def hysteresis(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """An answer stays until there is reason enough to leave it: one limit to enter, a lower one to leave.

    That is a Schmitt trigger. Limits are probabilities; of an anomaly detection they are multiples of the threshold. A
    class stays until another reaches `enter`, or it falls below `leave` itself: then the window's own is taken. A label
    of several, and an anomaly, begin at `enter` and stay until they fall below `leave`.
    """
    enter, leave = options["enter"], options["leave"]
    held: list[int] = []

    def smooth(answer: Any) -> Any:
        nonlocal held
        values = answer_values(answer, manifest)
        if manifest.task == "anomaly":
            held = [1] if values[0] > (leave if held else enter) * answer.threshold else []
        elif manifest.task == "classification":
            best = answer.index
            if not held or values[held[0]] < leave or values[best] >= enter:
                held = [best]
        else:
            on = [place for place, value in enumerate(values) if value >= (leave if place in held else enter)]
            held = sorted(on, key=lambda place: -values[place])
        return with_values(answer, manifest, values, held)

    return smooth


METHODS: dict[str, Callable[[Mapping[str, Any], Manifest], Smoother]] = {
    "majority": majority,
    "mean": mean,
    "hysteresis": hysteresis,
}


def answer_values(answer: Any, manifest: Manifest) -> list[float]:
    """A probability for each label, a regression's values, or the score of an anomaly detection."""
    if manifest.task == "classification":
        scores = answer.scores
        if manifest.activation == "softmax":
            return classification.probabilities(scores)
        found: list[float] = scores.tolist()
        return found
    if manifest.task == "anomaly":
        return [answer.score]
    named = answer.probabilities if manifest.task == "multi_label" else answer.values
    return [named[label] for label in manifest.labels]


def label_indices(answer: Any, manifest: Manifest) -> list[int]:
    """The places of the labels that an answer says, of an anomaly detection 1 for an anomaly."""
    if manifest.task == "classification":
        return [answer.index]
    if manifest.task == "anomaly":
        return [1] if answer.is_anomaly else []
    return [manifest.labels.index(label) for label in answer.labels]


def with_values(answer: Any, manifest: Manifest, values: Sequence[float], says: Sequence[int] | None = None) -> Any:
    """The answer with other numbers, saying these labels; None: those that the numbers say by the task's own rule."""
    labels = manifest.labels
    if manifest.task == "regression":
        return replace(answer, values=dict(zip(labels, values)))
    if manifest.task == "anomaly":
        is_anomaly = values[0] > answer.threshold if says is None else bool(says)
        return replace(answer, is_anomaly=is_anomaly, score=values[0], label=labels[is_anomaly])
    first = () if says is None else says
    ranked = sorted(range(len(values)), key=lambda place: (-values[place], place not in first))
    if manifest.task == "classification":
        best = ranked[0] if says is None else says[0]
        top = [(labels[place], values[place]) for place in ranked[: len(answer.top)]]
        return replace(answer, label=labels[best], index=best, top=top)
    found = [place for place in ranked if values[place] >= multi_label.MIN_PROBABILITY] if says is None else says
    return replace(answer, labels=[labels[place] for place in found], probabilities=dict(zip(labels, values)))
