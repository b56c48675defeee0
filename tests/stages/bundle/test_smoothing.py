"""Smoothing chosen on validation: by the rule that is stated, from answers made by the runner's own code."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from edgekit.runner.bundle.manifest import Manifest
from edgekit.stages.bundle import streams
from edgekit.stages.bundle.config import BundleConfig
from edgekit.stages.bundle.streams import WindowSequence, stream_summary
from tests.runner.bundle.test_manifest import MEMBERS, MODEL
from tests.runner.conftest import manifest_for

REST, WORD = 0, 1


def manifest(task: str = "classification") -> Manifest:
    more: dict[str, Any] = {"labels": ["street", "word"], "activation": "none"}
    if task == "anomaly":
        reconstruction = dataclasses.replace(MODEL.output, shape=(1, *MODEL.input.answer), layout=MODEL.input.layout)
        more |= {"labels": ["normal", "anomaly"], "threshold": 2.0, "output": reconstruction}
    return manifest_for(MODEL, members=MEMBERS, task=task, **more)


def sequence(truth: str, hop_s: float | None = 0.5) -> WindowSequence:
    labels = np.array([" w".index(each) for each in truth], np.int64)
    return WindowSequence(np.arange(len(labels)), labels, np.zeros(len(labels), np.int64), REST, 800, hop_s, 2)


def outputs(answers: str) -> np.ndarray:
    """Probabilities: sure of a word at `W`, fairly at `w`, faintly against it at `.`."""
    word = {"W": 0.95, "w": 0.65, ".": 0.4, " ": 0.05}
    return np.array([[1 - word[each], word[each]] for each in answers], np.float32)


def evaluate(answers: str, truth: str, hop_s: float | None = 0.5, **options: Any) -> Any:
    config = BundleConfig.model_validate({"smoothing": "auto", **options})
    return streams.evaluate_smoothing(sequence(truth, hop_s), outputs(answers), None, manifest(), config)


def selected(evaluation: Any) -> Any:
    [row] = [row for row in evaluation["candidates"] if row["kept"]]
    return row


TRUTH = "          wwwwwwww          " * 4
BLIPS = "  w    w  WWWWWWWW    w   w " * 4


def test_what_silences_false_alarms_and_keeps_every_event_is_kept() -> None:
    found = evaluate(BLIPS, TRUTH)
    none, best = found["candidates"][0], selected(found)
    assert none["smoothing"] is None and none["false_alarms"] == 16 and none["detected"] == 4
    assert best["smoothing"] is not None and (best["false_alarms"], best["detected"]) == (0, 4)
    assert found["rule"] == "fewest false alarms" and found["events"] == 4
    assert found["hours"] == pytest.approx((len(TRUTH) - 4 * 10) * 0.5 / 3600)
    assert best["per_hour"] == 0 and best["per_hour_at_most"] == pytest.approx(2.9957 / found["hours"], 1e-3)


def test_no_smoothing_is_kept_where_nothing_is_to_be_gained() -> None:
    found = evaluate(TRUTH.replace("w", "W"), TRUTH)
    assert selected(found)["smoothing"] is None
    assert {row["reason"] for row in found["candidates"][1:]} <= {"later, or no better", "more false alarms"}


def test_short_events_are_not_given_up_for_quiet() -> None:
    truth = ("     ww      " * 6) + " " * 20
    answers = ("     WW      " * 6) + "  w    w   w       w"
    ways = [{"method": "majority", "windows": 9}]
    found = evaluate(answers, truth, smoothing={"choose": ways})
    assert found["candidates"][1]["false_alarms"] < found["candidates"][0]["false_alarms"]
    assert selected(found)["smoothing"] is None and found["candidates"][1]["reason"] == "detects 6 events fewer"
    allowed = evaluate(answers, truth, smoothing={"choose": ways, "detection_drop_pp": 100.0})
    assert selected(allowed)["smoothing"] == ways[0]


def test_a_hysteresis_that_never_falls_silent_is_not_taken_for_quiet() -> None:
    """One alarm without end would be the fewest of all."""
    answers, truth = ".w.w..WWWW" + "." * 60, "      wwww" + " " * 60
    found = evaluate(answers, truth, smoothing={"choose": [{"method": "hysteresis", "enter": 0.7, "leave": 0.3}]})
    assert found["candidates"][1]["false_alarms"] > found["candidates"][0]["false_alarms"]
    assert selected(found)["smoothing"] is None


def test_the_first_of_equals_is_kept() -> None:
    ways = [{"method": "hysteresis", "enter": enter, "leave": 0.3} for enter in (0.7, 0.75)]
    assert selected(evaluate(BLIPS, TRUTH, smoothing={"choose": ways}))["smoothing"] == ways[0]


def test_without_a_background_the_most_accurate_is_kept() -> None:
    of = sequence(TRUTH)._replace(background=None)
    config = BundleConfig.model_validate({"smoothing": "auto"})
    found = streams.evaluate_smoothing(of, outputs(BLIPS), None, manifest(), config)
    best = selected(found)
    assert found["rule"] == "highest accuracy" and found["events"] is None and best["per_hour"] is None
    assert best["accuracy"] == max(row["accuracy"] for row in found["candidates"])
    assert best["accuracy"] > found["candidates"][0]["accuracy"]


def test_declared_smoothing_is_evaluated_and_not_chosen() -> None:
    way = {"method": "majority", "windows": 15}
    found = evaluate(BLIPS, TRUTH, smoothing=way)
    assert [row["smoothing"] for row in found["candidates"]] == [None, way]
    assert selected(found)["smoothing"] == way and found["rule"] == "as declared"
    nothing = evaluate(BLIPS, TRUTH, smoothing=None)
    assert len(nothing["candidates"]) == 1 and selected(nothing)["smoothing"] is None


def test_without_a_rate_alarms_are_counted_and_no_hours_claimed() -> None:
    found = evaluate(BLIPS, TRUTH, None)
    assert found["hours"] is None and found["windows_outside"] > 0
    assert all(row["per_hour"] is row["per_hour_at_most"] is None for row in found["candidates"])
    assert selected(found)["false_alarms"] == 0


def test_anomalies_are_events_and_scores_are_smoothed() -> None:
    windows = sequence("        wwwwww         " * 3)
    scores = np.array([4.0 if each == "w" else 0.1 for each in "  w     wwwwww    w    " * 3])
    given = np.sqrt(scores)[:, None].astype(np.float32)
    config = BundleConfig.model_validate({"smoothing": "auto", "task": "anomaly"})
    found = streams.evaluate_smoothing(windows, given, np.zeros_like(given), manifest("anomaly"), config)
    assert found["background"] == "normal" and found["candidates"][0]["false_alarms"] == 6
    assert (selected(found)["false_alarms"], selected(found)["detected"]) == (0, 3)


def test_the_same_answers_give_the_same_record() -> None:
    assert evaluate(BLIPS, TRUTH) == evaluate(BLIPS, TRUTH)


def test_a_bundles_readme_states_hours_and_bound() -> None:
    lines = stream_summary(evaluate(BLIPS, TRUTH))
    assert lines[0].startswith("Answers to a stream: ") and "one window every 800" in lines[0]
    assert "4 of 4 events detected, 0 false alarms in 0.01 h outside of them, at most 300 an hour" in lines[1]
    assert stream_summary(None) == []
